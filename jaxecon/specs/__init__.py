"""Data: models, accelerators, workloads, layouts, and how they are read from files."""

from ._accelerator import (
    Accelerator as Accelerator,
    Efficiencies as Efficiencies,
    Network as Network,
    PeakRates as PeakRates,
)
from ._engine import EngineProfile as EngineProfile
from ._model import (
    DenseFeedForward as DenseFeedForward,
    FeedForward as FeedForward,
    GroupedQueryAttention as GroupedQueryAttention,
    LatentAttention as LatentAttention,
    LayerGroup as LayerGroup,
    Mixer as Mixer,
    MixtureOfExperts as MixtureOfExperts,
    Model as Model,
    Precision as Precision,
    RecurrentMixer as RecurrentMixer,
)
from ._economics import Ownership as Ownership, Site as Site
from ._heads import eagle_head as eagle_head, prediction_head as prediction_head
from ._workload import Layout as Layout, Workload as Workload
from ._accelerator_toml import (
    list_accelerators as list_accelerators,
    load_accelerator as load_accelerator,
)
from ._catalogue import list_models as list_models, load_model as load_model
from ._speculation import (
    Speculation as Speculation,
    list_speculations as list_speculations,
    load_speculation as load_speculation,
)

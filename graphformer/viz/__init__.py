"""Pictures of attention and of halting; imported only when asked for.

Everything here takes plain arrays and lists of words: an attention map is ``(H, queries, keys)``.
No function needs a display, touches the chosen matplotlib backend or leaves a figure open.
"""

from __future__ import annotations

from .animation import att_animation
from .graphs import attention_graph
from .heatmap import attention_grid, attention_map
from .movie import Movie, save_animation
from .page import attention_page
from .ponder import halting_steps, steps_animation, steps_over_training

__all__ = [
    "Movie",
    "att_animation",
    "attention_graph",
    "attention_grid",
    "attention_map",
    "attention_page",
    "halting_steps",
    "save_animation",
    "steps_animation",
    "steps_over_training",
]

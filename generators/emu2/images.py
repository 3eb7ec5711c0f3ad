"""Pictures in, as upstream prepares them for the vision encoder."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image as Pillow

from generators.document import Image
from generators.pictures import decode

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's, by channel (emu/constants.py of baaivision/Emu)."""


def prepared(image: Image, side: int) -> torch.Tensor:
    """What the encoder reads: (3, side, side), float32, normalised.

    Both sides are scaled to `side` by bicubic interpolation, without a crop
    (`transform`, emu/chat.py). PictureError where the picture cannot be read.
    """
    picture = decode(image).resize((side, side), Pillow.Resampling.BICUBIC)
    values = torch.from_numpy(np.asarray(picture).astype(np.float32) / 255.0)
    normal = (values - torch.tensor(MEAN)) / torch.tensor(STD)
    return normal.permute(2, 0, 1)

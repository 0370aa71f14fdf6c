"""Where a file is cut into chunks, so that content which shares tensors shares chunks.

Cuts follow from sizes and tensor names alone, never from bytes, so that a chunk that did not change comes out
the same whatever changed beside it. A safetensors file is cut

- after its header, which differs between almost any two files;
- around each tensor of at least `SMALL`: a merged model then sends exactly the tensors that were merged into;
- inside a tensor every `LARGEST`;
- smaller tensors are packed with their neighbours of that sort, up to `PACKED`. Where a pack ends is also
  decided by the last tensor's name: so after a tensor is added or removed the packs are the old ones again
  a few tensors later.

Any other file is cut every `LARGEST`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise

from registry.content.safetensors import Header, Tensor

LARGEST = 64 << 20  # bytes of the largest chunk: one request, one retry, one buffer
SMALL = 64 << 10  # tensors below this are packed; one request each would cost more than it saves
PACKED = 1 << 20  # bytes of the largest pack
_PACK_ENDS_EVERY = 16  # tensors, on average


def cut_plain(size: int) -> list[int]:
    """Sizes of the chunks of a file of ``size`` bytes whose inside means nothing to us."""
    return list(_split(size))


def cut_safetensors(header: Header, size: int) -> list[int]:
    """Sizes of the chunks of a safetensors file of ``size`` bytes with a sound ``header``."""
    ends = [0, header.size, *_group_ends(header)]
    cuts = [part for begin, end in pairwise(ends) for part in _split(end - begin)]
    assert sum(cuts) == size
    return cuts


def _group_ends(header: Header) -> Iterator[int]:
    """File offsets at which a group of tensors (one large, or a pack of small ones) ends."""
    begin = header.size
    pending = False  # whether tensors since ``begin`` wait for their pack to end
    for name, tensor in header.tensors.items():
        if pending and (tensor.size >= SMALL or tensor.end - begin > PACKED):
            yield tensor.begin
            begin, pending = tensor.begin, False
        if tensor.size >= SMALL or _ends_pack(name, tensor):
            yield tensor.end
            begin, pending = tensor.end, False
        else:
            pending = True
    if pending:
        yield tensor.end


def _ends_pack(name: str, tensor: Tensor) -> bool:
    return zlib.crc32(f"{name} {tensor.size}".encode()) % _PACK_ENDS_EVERY == 0


def _split(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, LARGEST)
        size -= LARGEST

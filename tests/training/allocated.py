"""How many bytes tensors take that a piece of work makes: also those that FSDP frees and fills again."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class Allocated(TorchDispatchMode):
    """Bytes of every storage that was made within and lives, and the most there were."""

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._sizes: dict[int, int] = {}

    def _hold(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key in self._known:
            return
        if key not in self._sizes:
            weakref.finalize(storage, self._forget, key)
        self.now += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.most = max(self.most, self.now)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)

    def __enter__(self) -> "Allocated":
        # FSDP empties a weight's storage and makes room in it again, which no operation tells of.
        self._resize = resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            self._hold(storage, size)

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign]  # as torch's own tracker does
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]  # as above
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it is made of comes next
        made = func(*args, **(kwargs or {}))
        tree_map_only(
            torch.Tensor, lambda t: self._hold(t.untyped_storage(), t.untyped_storage().nbytes()), made
        )
        return made

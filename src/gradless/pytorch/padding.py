"""Rows of embeddings that stay as they are."""

from torch import Tensor, nn

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def padding_rows(model: nn.Module) -> dict[Tensor, int]:
    """Return the row for padding of each table that has one: PyTorch's promise for it is that it is not trained.

    A table that is also the weight of another layer has none, as there gradients would train all of it.
    """
    rows: dict[Tensor, int] = {}
    elsewhere: set[Tensor] = set()
    for module in model.modules():
        if not isinstance(module, EMBEDDINGS):
            elsewhere.update(module.parameters(recurse=False))
        elif module.padding_idx is not None:
            rows[module.weight] = module.padding_idx
    return {table: row for table, row in rows.items() if table not in elsewhere}

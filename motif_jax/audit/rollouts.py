"""Rows of rollouts that others record: TRL's logged completions, and the results of verifiers.

A row is one episode, whose text is what the model said. Neither library is imported.

- TRL, `log_completions=True`: a folder of Parquet files, one per logged step, or the same rows as JSON lines, with the
  columns step, prompt, completion, advantage, and a number for each reward function.
- verifiers, `vf-eval --save-results`: results.jsonl with example_id, prompt and completion as messages, reward, and
  metrics by name, which are no pay of their own. A rollout with an error counts as unfinished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.config.table import shown
from motif_jax.structs import UserError
from motif_jax.system.foreign import check_regular

SUFFIX = ".parquet"
AT_ONCE = 64  # rows that are decoded together
LARGEST_ROWS = AT_ONCE * 2**20  # bytes of their values
LARGEST_GROUP = 200_000_000  # bytes of a row group's columns; a reader needs four times as much
NO_REWARDS = {"step", "advantage", "advantages"}  # numbers of TRL's rows that are no rewards


def is_rollout(row: Any) -> bool:
    """Whether a row is of TRL or verifiers."""
    return type(row) is dict and "completion" in row and "episode" not in row


def row_of(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The row of an episode; raises ValueError for one that has no text. Its reward may be {}: none applies."""
    known = {"episode": number, "text": text_of(row["completion"]), "prompt": _prompt(row.get("prompt"))}
    known |= {"outcome": row.get("outcome")}
    if "example_id" in row and "reward" in row:
        whole = row.get("error") is None
        return known | {"reward": row["reward"] if whole else row["reward"] or 0.0, "ended": whole}
    rewards = {name: value for name, value in row.items()
               if type(value) in (int, float) and name not in NO_REWARDS | {"outcome"}}  # fmt: skip
    # A reward function that does not apply to a row gives None, which pandas makes NaN.
    return known | {"reward": {name: value for name, value in rewards.items() if value == value}}


def text_of(said: Any) -> str:
    """What the model said: a text, or the contents of its messages, of which the roles of others are left out."""
    if isinstance(said, str):
        return said
    if not isinstance(said, list) or not all(isinstance(message, dict) for message in said):
        raise ValueError(f"completion is {shown(said)}, not a text or a list of messages")
    contents = [message.get("content") for message in said if message.get("role", "assistant") == "assistant"]
    parts: list[str] = []
    for content in contents:  # a text, or a list of parts, some of which are texts
        inner = content if isinstance(content, list) else [{"text": content}]
        parts += [one["text"] for one in inner if isinstance(one, dict) and isinstance(one.get("text"), str)]
    return "\n".join(parts)


def _prompt(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=repr)


# ---- Parquet


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a path: itself, or those of a folder in the order of their names; [] without any."""
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    return [path] if path.suffix == SUFFIX else []


def parquet_rows(files: Sequence[Path]) -> Iterator[tuple[int, Any]]:
    """Yields the rows of all files with their numbers."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"reading {files[0].name!r} needs pyarrow: pip install pyarrow") from None
    number = 0
    for file in files:
        try:
            check_regular(file)
            texts = _texts_of(parquet.read_metadata(file), file.name)
            with parquet.ParquetFile(file, read_dictionary=texts) as opened:
                for rows in _parts(opened):
                    if sum(map(_size, rows.columns)) > LARGEST_ROWS:
                        after = f"{len(rows)} rows after row {number:,}"
                        raise ValueError(f"{file.name}: {after} have more than {LARGEST_ROWS:,} bytes")
                    for row in rows.to_pylist():
                        number += 1
                        yield number, row
        except (pyarrow.ArrowException, OverflowError) as error:  # the latter: dates out of range
            raise ValueError(f"{file.name}: it is not Parquet: {error!s:.200}") from None


def _texts_of(metadata: Any, name: str) -> list[str]:
    """The columns of texts, which stay dictionaries until their rows' size is known; raises ValueError if too large."""
    columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        # Equal values may be stored once, so the number of values counts, too.
        values = sum(group.column(at).num_values * (column.length or 8) for at, column in enumerate(columns))
        if max(group.total_byte_size, values) > LARGEST_GROUP:
            raise ValueError(f"{name}: a row group has more than {LARGEST_GROUP:,} bytes: write smaller ones")
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _parts(opened: Any) -> Iterator[Any]:
    """Yields a few rows at a time. A dictionary grows while a row group is read, and each batch has all of it."""
    for group in range(opened.num_row_groups):
        for batch in opened.iter_batches(2**16, [group]):
            for start in range(0, len(batch), AT_ONCE):
                yield batch.slice(start, AT_ONCE)


def _size(column: Any) -> int:
    """The bytes of an Arrow array, whose dictionaries count for each row."""
    from pyarrow import BaseExtensionType, compute, types

    if isinstance(column.type, BaseExtensionType):
        return _size(column.storage)
    if types.is_dictionary(column.type):
        used, counts = column.indices.value_counts().flatten()
        sizes = compute.multiply(compute.binary_length(column.dictionary.take(used)), counts)
        return compute.sum(sizes).as_py() or 0
    if types.is_nested(column.type):  # a map, a struct or lists
        if types.is_map(column.type):  # whose parts are those of the whole batch
            start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
            return sum(_size(part.slice(start, stop - start)) for part in (column.keys, column.items))
        inner = column.flatten()
        return sum(map(_size, inner)) if isinstance(inner, list) else _size(inner)
    return column.nbytes

"""Makes the files beside it with pyarrow 26: python make.py"""
import pyarrow as pa, pyarrow.parquet as pq

pq.write_table(pa.table({"id": [1, 2, 3, 4], "text": ["one", "zwölf", None, ""]}), "text.parquet", compression="zstd")
messages = [
    [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Hello"}],
    [],
    [{"role": "system", "content": None}],
    None,
]
pq.write_table(pa.table({"messages": messages, "n": [1, 2, 3, 4]}), "chat.parquet", compression="snappy")
pq.write_table(pa.table({"body": ["x"]}), "other.parquet")

"""sys_flag: the bits of a record and what they mean (docs/rocketmq/store.md 1.6)."""

COMPRESSED = 0x1
# Of a message put to a topic whose filter type is MULTI_TAG.
MULTI_TAGS = 0x2

# The transaction type; a plain message has neither of the two bits.
TRANSACTION_BITS = 0xC
PLAIN, PREPARED, COMMITTED, ROLLED_BACK = 0x0, 0x4, 0x8, 0xC

BORN_HOST_IPV6, STORE_HOST_IPV6 = 0x10, 0x20
INNER_BATCH = 0x80

COMPRESSION_BITS = 0x700
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300

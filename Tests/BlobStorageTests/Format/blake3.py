"""BLAKE3 of whole inputs, after its specification: https://github.com/BLAKE3-team/BLAKE3-specs, section 2.

A vector is an integer of 64-bit lanes, each with one word of another chunk. So one addition works on all
chunks of an input, and 16 MiB take about a second.
"""
import array, struct, sys

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8


def vector(words):
    return int.from_bytes(array.array("Q", words).tobytes(), sys.byteorder)


def compress(chaining, message, counters, length, flags, count):
    """The next chaining values of `count` lanes."""
    ones = vector([1] * count)
    mask = 0xFFFFFFFF * ones
    v = list(chaining) + [word * ones for word in IV[:4]] + [counters, 0, length * ones, flags * ones]

    def turned(x, bits):
        return (x >> bits | x << 32 - bits) & mask

    for _ in range(7):
        for index, (a, b, c, d) in enumerate(MIXES):
            for word, first, second in ((message[2 * index], 16, 12), (message[2 * index + 1], 8, 7)):
                v[a] = v[a] + v[b] + word & mask
                v[d] = turned(v[d] ^ v[a], first)
                v[c] = v[c] + v[d] & mask
                v[b] = turned(v[b] ^ v[c], second)
        message = [message[index] for index in PERMUTATION]
    return [v[index] ^ v[index + 8] for index in range(8)]


def nodes(vectors, count):
    """The chaining value of each lane, as eight words."""
    columns = [word.to_bytes(8 * count, sys.byteorder) for word in vectors]
    return list(zip(*(struct.unpack(f"={count}Q", column) for column in columns)))


def chunk_nodes(data, first, count, last_flags):
    """The chaining values of `count` chunks of one length."""
    size = len(data) // count
    padded = data + bytes(-size % 64 if size else 64)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    stride = len(words) // count
    chaining = [word * vector([1] * count) for word in IV]
    counters = vector(range(first, first + count))
    for block in range(stride // 16):
        message = [vector(words[16 * block + word :: stride]) for word in range(16)]
        flags = CHUNK_START if block == 0 else 0
        flags |= CHUNK_END | last_flags if block == stride // 16 - 1 else 0
        chaining = compress(chaining, message, counters, min(64, size - 64 * block), flags, count)
    return nodes(chaining, count)


def blake3(data):
    whole = max(0, len(data) - 1) // 1024
    level = chunk_nodes(data[: whole * 1024], 0, whole, 0) if whole else []
    level += chunk_nodes(data[whole * 1024 :], whole, 1, 0 if whole else ROOT)
    while len(level) > 1:
        pairs = [left + right for left, right in zip(level[::2], level[1::2])]
        chaining = [word * vector([1] * len(pairs)) for word in IV]
        flags = PARENT | (ROOT if len(level) == 2 else 0)
        parents = compress(chaining, [vector(words) for words in zip(*pairs)], 0, 64, flags, len(pairs))
        level = nodes(parents, len(pairs)) + level[2 * len(pairs) :]
    return struct.pack("<8I", *level[0])

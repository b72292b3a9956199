"""Numbers that a recorder and a test both make, so that no weights have to be kept in the repository: a hash of
the tensor's name and the element's number."""
import struct
import zlib


def uniform(name, count):
    """`count` numbers in [-1, 1), multiples of 2^-23: exact in f32."""
    seed, out = zlib.crc32(name.encode()), []
    for i in range(count):
        h = (seed + (i + 1) * 0x9E3779B1) & 0xFFFFFFFF
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
        out.append(((h ^ (h >> 16)) >> 8) / (1 << 23) - 1.0)
    return out


def product(shape):
    out = 1
    for extent in shape:
        out *= extent
    return out


def to_f32(values):
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def weight(name, shape):
    """An initial value that trains: He's deviation for weights, scales near 1, running statistics near (0, 1)."""
    u = uniform(name, product(shape))
    if len(shape) > 1:
        bound = (6.0 / product(shape[1:])) ** 0.5
        return to_f32([bound * v for v in u])
    if name.endswith("running_var") or name.endswith("weight"):
        return to_f32([1.0 + 0.125 * v for v in u])
    return to_f32([0.125 * v for v in u])


def batches(samples, shape, classes):
    """Images [samples, height, width, channels] around a mean for each class, and their labels."""
    labels = [int((v + 1) / 2 * classes) for v in uniform("labels", samples)]
    size = product(shape)
    means = [uniform(f"mean {c}", size) for c in range(classes)]
    noise = uniform("noise", samples * size)
    pixels = [means[labels[s]][i] + noise[s * size + i] for s in range(samples) for i in range(size)]
    return to_f32(pixels), labels

// Eight lanes: AVX2.

#if defined(__x86_64__)
#define LANES 8
#define KERNEL bs_blake3_lanes8
#define TARGET __attribute__((target("avx2")))
#define LANES_ROUND ROUND
#include "bs_blake3_lanes.h"
#endif

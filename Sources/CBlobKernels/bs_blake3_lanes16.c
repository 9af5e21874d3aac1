// Sixteen lanes: AVX-512. The message and the state fill its 32 registers exactly.

#if defined(__x86_64__)
#define LANES 16
#define KERNEL bs_blake3_lanes16
#define TARGET __attribute__((target("avx512f,avx512vl")))
#include "bs_blake3_lanes.h"
#endif

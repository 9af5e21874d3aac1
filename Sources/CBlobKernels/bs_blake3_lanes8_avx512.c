// Eight lanes where AVX-512 is there, for short inputs: it rotates in one instruction, and has 32 registers.

#if defined(__x86_64__)
#define LANES 8
#define KERNEL bs_blake3_lanes8_avx512
#define TARGET __attribute__((target("avx512f,avx512vl")))
#define LANES_ROUND ROUND_ABREAST
#include "bs_blake3_lanes.h"
#endif

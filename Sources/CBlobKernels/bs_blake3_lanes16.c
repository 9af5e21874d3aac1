// Sixteen lanes: AVX-512. The state and its constants fill half of its 32 registers.

#if defined(__x86_64__)
#define LANES 16
#define KERNEL bs_blake3_lanes16
#define TARGET __attribute__((target("avx512f,avx512vl")))
// Each round reads the message from memory: kept in registers, it would drive the state out of them.
#define LANES_ROUND(...)                        \
  do {                                          \
    __asm__ volatile("" : : "r"(m) : "memory"); \
    ROUND_ABREAST(__VA_ARGS__);                 \
  } while (0)
#include "bs_blake3_lanes.h"
#endif

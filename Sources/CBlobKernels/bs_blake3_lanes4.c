// Four lanes: SSE4.1 (for its byte shuffle) on x86-64; on arm64 NEON is always there.

#if defined(__x86_64__) || defined(__aarch64__)
#define LANES 4
#define KERNEL bs_blake3_lanes4
#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.1")))
#define LANES_ROUND ROUND
#else
#define TARGET
#define LANES_ROUND ROUND_ABREAST
#endif
#include "bs_blake3_lanes.h"
#endif

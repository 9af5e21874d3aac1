// Prefix calls of libzstd are stable; its parameters for tuning are not used.
#include <zstd.h>
#include <zstd_errors.h>

#ifndef LIBFUZZER_H
#define LIBFUZZER_H

#include <stddef.h>
#include <stdint.h>

// The entry of libFuzzer for programs with a main of their own.
int LLVMFuzzerRunDriver(int *_Nonnull argc, char *_Nullable *_Nonnull *_Nonnull argv,
                        int (*_Nonnull run)(const uint8_t *_Nullable bytes, size_t count));

#endif

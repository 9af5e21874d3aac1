// Only its flags for the compiler and the linker are used: see CFuseSession.
#if __has_include(<fuse_lowlevel.h>)
#define FUSE_USE_VERSION 35
#include <fuse_lowlevel.h>
#endif

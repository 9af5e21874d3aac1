#if THREAD_SANITIZER && canImport(Glibc)
  import BlobStorage

  // The thread sanitizer understands this lock, as in the core.
  typealias Mutex = VisibleMutex
#endif

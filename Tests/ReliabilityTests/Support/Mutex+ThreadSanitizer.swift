#if THREAD_SANITIZER && canImport(Glibc)
  import BlobStorage

  // For the thread sanitizer, as in the engine.
  typealias Mutex = VisibleMutex
#endif

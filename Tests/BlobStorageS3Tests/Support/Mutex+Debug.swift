#if DEBUG && canImport(Glibc)
  import BlobStorage

  // For the thread sanitizer, as in the engine.
  typealias Mutex = VisibleMutex
#endif

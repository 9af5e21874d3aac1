import Foundation

/// Checks at the start what the process may have. The system libraries that the tool is built on crash or wait forever
/// when they are refused a thread or descriptor, so they must not be the first to ask.
enum ResourceLimits {
  private static let descriptorCount = 32
  private static let threadCount = 8
  private static let addressByteCount = 256 << 20

  /// Raises limits as far as the system lets it; returns a sentence if one is still too low.
  static func shortage() -> String? {
    raiseDescriptorLimit()
    guard hasDescriptors() else {
      return "The limit of open files is too low: allow \(descriptorCount) more (`ulimit -n`)."
    }
    guard hasAddressSpace() else {
      return "The limit of address space is too low: allow more (`ulimit -v`)."
    }
    guard hasThreads() else {
      return "The limit of processes and threads is too low: allow \(threadCount) more (`ulimit -u`)."
    }
    return nil
  }

  private static func raiseDescriptorLimit() {
    #if canImport(Darwin)
      let resource = RLIMIT_NOFILE
    #else
      let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #endif
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0, limit.rlim_cur < 256, limit.rlim_cur < limit.rlim_max else {
      return
    }
    limit.rlim_cur = min(limit.rlim_max, 256)
    setrlimit(resource, &limit)
  }

  private static func hasDescriptors() -> Bool {
    var opened: [Int32] = []
    defer { for descriptor in opened { close(descriptor) } }
    while opened.count < descriptorCount {
      let descriptor = open("/", O_RDONLY | O_CLOEXEC)
      guard descriptor >= 0 else { return errno != EMFILE && errno != ENFILE }
      opened.append(descriptor)
    }
    return true
  }

  private static func hasAddressSpace() -> Bool {
    let memory = mmap(
      nil, addressByteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0)
    guard let memory, memory != MAP_FAILED else { return false }
    munmap(memory, addressByteCount)
    return true
  }

  /// Whether so many threads can exist at once.
  private static func hasThreads() -> Bool {
    let gate = DispatchSemaphore(value: 0)
    let context = Unmanaged.passUnretained(gate).toOpaque()
    #if canImport(Darwin)
      var threads: [pthread_t] = []
      var thread: pthread_t?
    #else
      var threads: [pthread_t] = []
      var thread = pthread_t()
    #endif
    while threads.count < threadCount {
      let code = pthread_create(
        &thread, nil,
        { context in
          #if canImport(Darwin)
            Unmanaged<DispatchSemaphore>.fromOpaque(context).takeUnretainedValue().wait()
          #else
            if let context { Unmanaged<DispatchSemaphore>.fromOpaque(context).takeUnretainedValue().wait() }
          #endif
          return nil
        }, context)
      if code != 0 { break }
      #if canImport(Darwin)
        if let thread { threads.append(thread) }
      #else
        threads.append(thread)
      #endif
    }
    for _ in threads { gate.signal() }
    for thread in threads { pthread_join(thread, nil) }
    return threads.count == threadCount
  }
}

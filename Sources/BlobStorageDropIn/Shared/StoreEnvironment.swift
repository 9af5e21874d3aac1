import BlobStorage

/// What tests put in place of the system where the stores of the libraries are opened.
package enum StoreEnvironment {
  /// For all stores that are first named while it is set; nil is the system.
  @TaskLocal package static var current: Engine.Environment?
}

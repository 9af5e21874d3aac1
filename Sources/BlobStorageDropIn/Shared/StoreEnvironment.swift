import BlobStorage

/// The environment that tests set for the stores of the libraries.
package enum StoreEnvironment {
  /// Applies to all stores that are first named while it is set; nil is the system.
  @TaskLocal package static var current: Engine.Environment?
}

import CBlobKernels

/// Runs `body`, in which another library opens descriptors: none of them is a standard descriptor that the program has
/// closed. What this package opens itself never is.
package func keepingStandardDescriptors<Value, Failure: Error>(
  _ body: () throws(Failure) -> Value
) throws(Failure) -> Value {
  bs_occupy_standard()
  defer { bs_release_standard() }
  return try body()
}

/// Keeps a descriptor that another library has opened from the programs that this process starts.
package func closeOnExec(_ descriptor: Int32) { _ = bs_close_on_exec(descriptor) }

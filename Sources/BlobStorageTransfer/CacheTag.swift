import BlobStorage
import CBlobKernels
import SystemPackage

/// The tag file that marks a folder as a cache: https://bford.info/cachedir/
enum CacheTag {
  static let name = "CACHEDIR.TAG"
  private static let signature = Array("Signature: 8a477f597d28d172789f06886806bc55".utf8)

  /// Whether the folder has a tag file that begins with the signature.
  static func isValid(in folder: Int32) -> Bool {
    do throws(BlobStorageError) {
      let file = try InputFile(folder, [CChar](terminating: name.utf8), FilePath(name), [])
      let beginning = try [UInt8](filling: signature.count) { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
      return beginning == signature
    } catch { return false }
  }
}

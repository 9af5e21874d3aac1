import BlobStorage
import SystemPackage

/// What gc reads of the leases of all living writers.
package struct AllLeases {
  package private(set) var held: Set<LeaseSlot> = []
  package let firstPacks: [UInt64: UInt32]

  package init(
    in folder: FilePath, _ files: any FileSystem, _ algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) {
    var held: Set<LeaseSlot> = []
    firstPacks = try Leases.read(folder: folder, files: files, algorithm: algorithm) {
      (part) throws(BlobStorageError) in held.formUnion(part)
    }.firstPacks
    self.held = held
  }
}

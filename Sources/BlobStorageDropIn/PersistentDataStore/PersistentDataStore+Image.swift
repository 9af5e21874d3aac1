#if canImport(UIKit)
  import Foundation
  import UIKit

  extension PersistentDataStore {
    /// Stores an image as JPEG of the best quality.
    public func storeImage(
      _ image: UIImage, identifier: String = UUID().uuidString,
      completionHandler handler: @escaping (Result) -> Void
    ) {
      storeData({ image.jpegData(compressionQuality: 1) }, identifier: identifier, completionHandler: handler)
    }

    /// Hands over an image.
    public func loadImage(
      forIdentifier identifier: Identifier, completionHandler block: @escaping (UIImage?) -> Void
    ) {
      loadData(forIdentifier: identifier, dataTransformer: { UIImage(data: $0) }, completionHandler: block)
    }
  }
#endif

#if canImport(ImageIO) && canImport(UniformTypeIdentifiers)
  import CoreGraphics
  import Foundation
  import ImageIO
  import UniformTypeIdentifiers

  /// An image that a store keeps, for SwiftUI, UIKit and AppKit: `Image(decorative: image.cgImage, scale: 1)`,
  /// `UIImage(cgImage:)` or `NSImage(cgImage:size:)`.
  public struct BlobImage: @unchecked Sendable {
    // Unchecked: a CGImage never changes.
    public let cgImage: CGImage

    public init(_ cgImage: CGImage) { self.cgImage = cgImage }
  }

  extension BlobFormat where Value == BlobImage {
    /// Writes images as PNG, and reads every format that the system knows.
    public static var image: Self { image(type: .png) }

    /// Writes images in a format that the system can write, and reads every format that it knows.
    ///
    /// - Parameters:
    ///   - type: such as `.png`, `.jpeg` or `.heic`.
    ///   - quality: from 0 to 1, for formats that lose something.
    public static func image(type: UTType, quality: Double = 0.9) -> Self {
      BlobFormat { image in
        let data = NSMutableData()
        let options = [kCGImageDestinationLossyCompressionQuality: quality] as CFDictionary
        guard
          let target = CGImageDestinationCreateWithData(data, type.identifier as CFString, 1, nil)
        else { throw CocoaError(.fileWriteUnknown) }
        CGImageDestinationAddImage(target, image.cgImage, options)
        guard CGImageDestinationFinalize(target) else { throw CocoaError(.fileWriteUnknown) }
        return data as Data
      } decode: { data in
        guard let source = CGImageSourceCreateWithData(data as CFData, nil),
          let image = CGImageSourceCreateImageAtIndex(source, 0, nil)
        else { throw CocoaError(.fileReadCorruptFile) }
        return BlobImage(image)
      }
    }
  }
#endif

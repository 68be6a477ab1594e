//! Prepares pictures for a model: decodes them within limits, scales them down, and encodes them again, so that only
//! the pixels remain.

mod scale;

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_protocol::Picture;
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits, RgbImage};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Longest edge of a picture for the model, in pixels. Source: Anthropic, "Vision": the API scales larger pictures down
/// to 1568, which only costs time.
const MAX_EDGE: u32 = 1568;
/// Most pixels that are decoded. 40 million: more than cameras take without stitching.
const MAX_PIXELS: u64 = 40_000_000;
/// Most memory for decoding one picture, in bytes. 64 MiB: 16 million pixels of four bytes.
const MAX_ALLOC_BYTES: u64 = 64 * 1024 * 1024;
/// Largest encoded picture, in bytes. 1 MiB: a request holds several, and providers refuse ones above some 5 MB.
const MAX_ENCODED_BYTES: usize = 1024 * 1024;
/// JPEG qualities to try, best first, before the picture is scaled down.
const QUALITIES: [u8; 3] = [85, 70, 50];
/// Number of bytes at the beginning of a file that identify its picture format.
pub(crate) const SNIFFED_BYTES: usize = 16;

/// Cleans one picture at a time, because two large ones at once would need twice the memory.
#[derive(Clone, Debug)]
pub(crate) struct Pictures {
    turn: Arc<Semaphore>,
}

/// A cleaned picture, with its format and size before and after.
#[derive(Debug)]
pub(crate) struct Cleaned {
    pub(crate) picture: Picture,
    format: ImageFormat,
    was: (u32, u32),
    is: (u32, u32),
}

/// Why a picture could not be cleaned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PictureError {
    /// The call was cancelled.
    Cancelled,
    /// A reason in plain words.
    Unreadable(String),
}

/// The picture format of these first bytes, if it is a supported one.
pub(crate) fn format_of(beginning: &[u8]) -> Option<ImageFormat> {
    let format = image::guess_format(beginning).ok()?;
    matches!(format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP).then_some(format)
}

impl Pictures {
    pub(crate) fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for its turn, reads a picture with `load`, and cleans it. Blocking work runs on the blocking pool.
    ///
    /// # Cancel safety
    /// If the future is dropped or cancelled, a decoding that has begun continues to its end without effect.
    pub(crate) async fn clean(
        &self,
        load: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
        cancel: &CancellationToken,
    ) -> Result<Cleaned, PictureError> {
        let permit = tokio::select! {
            () = cancel.cancelled() => return Err(PictureError::Cancelled),
            permit = self.turn.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
        };
        let work = tokio::task::spawn_blocking(move || {
            let cleaned = load().and_then(|bytes| clean(&bytes));
            drop(permit);
            cleaned
        });
        let done = tokio::select! {
            () = cancel.cancelled() => return Err(PictureError::Cancelled),
            done = work => done,
        };
        match done {
            Ok(cleaned) => cleaned.map_err(PictureError::Unreadable),
            Err(error) => {
                tracing::error!(%error, "decoding a picture panicked");
                Err(PictureError::Unreadable("it is broken in a way that stopped its decoder".to_owned()))
            }
        }
    }
}

impl fmt::Display for Cleaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.format.extensions_str()[0].to_uppercase();
        write!(f, "{kind} picture, {} x {} pixels", self.was.0, self.was.1)?;
        if self.is != self.was {
            write!(f, ", shown at {} x {}", self.is.0, self.is.1)?;
        }
        if matches!(self.format, ImageFormat::Gif) {
            f.write_str(", its first frame")?;
        }
        Ok(())
    }
}

/// Decodes, scales and encodes a picture.
fn clean(bytes: &[u8]) -> Result<Cleaned, String> {
    let format = format_of(bytes).ok_or("it is not a PNG, JPEG, GIF or WebP picture")?;
    let mut decoder = ImageReader::with_format(Cursor::new(bytes), format).into_decoder().map_err(|e| broken(&e))?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MAX_PIXELS || decoder.total_bytes() > MAX_ALLOC_BYTES {
        return Err(format!("it has {width} x {height} pixels, which is more than is decoded here"));
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_ALLOC_BYTES);
    decoder.set_limits(limits).map_err(|error| broken(&error))?;
    // A picture without orientation data is upright.
    let orientation = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| broken(&error))?;
    if image.width().max(image.height()) > MAX_EDGE {
        image = scale::scaled_down(image, MAX_EDGE);
    }
    image.apply_orientation(orientation);
    let (media_type, encoded, is) = encode(image, format)?;
    let picture = Picture { media_type: media_type.to_owned(), base64: STANDARD.encode(encoded).into() };
    Ok(Cleaned { picture, format, was: (width, height), is })
}

fn broken(error: &ImageError) -> String {
    match error {
        ImageError::Limits(_) => "decoding it takes more memory than is given for it here".to_owned(),
        ImageError::Unsupported(_) => "it is of a rare kind that is not decoded here".to_owned(),
        _ => "it is broken or cut off".to_owned(),
    }
}

type Encoded = (&'static str, Vec<u8>, (u32, u32));

/// Encodes without loss if the original was lossless and the result fits. Otherwise encodes as JPEG, with lower quality
/// and then smaller, until it fits.
fn encode(mut image: DynamicImage, format: ImageFormat) -> Result<Encoded, String> {
    let failed = |error: ImageError| {
        tracing::warn!(%error, "a picture could not be encoded");
        "it could not be encoded anew".to_owned()
    };
    if format != ImageFormat::Jpeg {
        let mut png = Vec::new();
        image.write_to(&mut Cursor::new(&mut png), ImageFormat::Png).map_err(failed)?;
        if png.len() <= MAX_ENCODED_BYTES {
            return Ok(("image/png", png, (image.width(), image.height())));
        }
    }
    loop {
        let opaque = on_white(&image);
        for quality in QUALITIES {
            let mut jpeg = Vec::new();
            opaque.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, quality)).map_err(failed)?;
            if jpeg.len() <= MAX_ENCODED_BYTES {
                return Ok(("image/jpeg", jpeg, opaque.dimensions()));
            }
        }
        // Halving always ends: a picture of one pixel has a few hundred bytes.
        image = image.thumbnail(image.width().div_ceil(2), image.height().div_ceil(2));
    }
}

/// Blends the picture with white, because JPEG has no transparency.
fn on_white(image: &DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let pixels = image.to_rgba8();
    RgbImage::from_fn(pixels.width(), pixels.height(), |x, y| {
        let [r, g, b, alpha] = pixels.get_pixel(x, y).0;
        let blend = |channel: u8| {
            let (channel, alpha) = (u16::from(channel), u16::from(alpha));
            // At most (255 * 255) / 255, so it fits.
            u8::try_from((channel * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX)
        };
        image::Rgb([blend(r), blend(g), blend(b)])
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use image::{Rgba, RgbaImage};

    use super::*;

    fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        image.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
        bytes
    }

    fn decoded(cleaned: &Cleaned) -> DynamicImage {
        image::load_from_memory(&STANDARD.decode(cleaned.picture.base64.as_bytes()).unwrap()).unwrap()
    }

    /// Noise, which no encoder compresses well.
    fn noise(width: u32, height: u32) -> RgbImage {
        let mut state = 1u32;
        RgbImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, c, _] = state.to_be_bytes();
            image::Rgb([a, b, c])
        })
    }

    #[test]
    fn every_kind_is_read_and_encoded_anew() {
        let image = DynamicImage::ImageRgb8(RgbImage::from_pixel(20, 10, image::Rgb([200, 10, 10])));
        for (format, expected_text, media_type) in [
            (ImageFormat::Png, "PNG picture, 20 x 10 pixels", "image/png"),
            (ImageFormat::Jpeg, "JPG picture, 20 x 10 pixels", "image/jpeg"),
            (ImageFormat::Gif, "GIF picture, 20 x 10 pixels, its first frame", "image/png"),
            (ImageFormat::WebP, "WEBP picture, 20 x 10 pixels", "image/png"),
        ] {
            let mut bytes = encoded(&image, format);
            bytes.extend_from_slice(b"a passenger behind the picture");
            let cleaned = clean(&bytes).unwrap();
            assert_eq!(
                (cleaned.to_string().as_str(), cleaned.picture.media_type.as_str()),
                (expected_text, media_type)
            );
            let sent = STANDARD.decode(cleaned.picture.base64.as_bytes()).unwrap();
            assert!(!sent.windows(9).any(|window| window == b"passenger"));
            assert_eq!((decoded(&cleaned).width(), decoded(&cleaned).height()), (20, 10));
        }
    }

    #[test]
    fn a_large_picture_is_scaled_and_a_heavy_one_becomes_a_jpeg_that_fits() {
        let wide = DynamicImage::ImageRgb8(RgbImage::new(3136, 100));
        let cleaned = clean(&encoded(&wide, ImageFormat::Png)).unwrap();
        assert_eq!(cleaned.to_string(), "PNG picture, 3136 x 100 pixels, shown at 1568 x 50");

        let heavy = clean(&encoded(&DynamicImage::ImageRgb8(noise(900, 900)), ImageFormat::Png)).unwrap();
        assert_eq!(heavy.picture.media_type, "image/jpeg");
        assert!(heavy.picture.base64.len() <= MAX_ENCODED_BYTES * 4 / 3 + 4);
    }

    #[test]
    fn transparency_becomes_white_in_a_jpeg() {
        let clear = DynamicImage::ImageRgba8(RgbaImage::from_pixel(4, 4, Rgba([0, 0, 0, 0])));
        assert!(on_white(&clear).pixels().all(|pixel| pixel.0 == [255, 255, 255]));
    }

    #[test]
    fn an_invalid_or_large_picture_is_a_failure_with_the_reason() {
        let png = encoded(&DynamicImage::ImageRgb8(RgbImage::new(8, 8)), ImageFormat::Png);
        let mut bomb = png.clone();
        // In a PNG, the width is at byte 16, the height at byte 20, and a checksum over both at byte 29.
        bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        let sum = crc32(&bomb[12..29]).to_be_bytes();
        bomb[29..33].copy_from_slice(&sum);
        for (bytes, expected_text) in [
            (b"plain text".as_slice(), "not a PNG"),
            (b"".as_slice(), "not a PNG"),
            (&png[..40], "broken or cut off"),
            (&bomb, "65535 x 65535 pixels"),
            (b"GIF89a", "broken or cut off"),
            (b"\xff\xd8\xff\xe0", "broken or cut off"),
            (b"RIFF\x04\0\0\0WEBP", "broken or cut off"),
        ] {
            let message = clean(bytes).unwrap_err();
            assert!(message.contains(expected_text), "{message}");
        }
    }

    /// Source: PNG specification, annex D.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
        })
    }

    #[tokio::test]
    async fn a_cancelled_picture_is_not_waited_for() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let pictures = Pictures::new();
        let cleaned = pictures.clean(|| Ok(Vec::new()), &cancel).await;
        assert_eq!(cleaned.unwrap_err(), PictureError::Cancelled);
        let next = pictures.clean(|| Ok(Vec::new()), &CancellationToken::new()).await;
        assert!(matches!(next, Err(PictureError::Unreadable(_))), "the turn was given back");
    }
}

//! Scales pictures down: each new pixel is the mean of the area that it covers.
//!
//! A picture of a camera takes a quarter of the time that the library's own function takes. So it is ready for the model
//! sooner (`make bench`, the part `attachments`).

use image::{DynamicImage, GrayImage, RgbImage, RgbaImage};

/// Largest ratio of an old to a new edge. 64: above it, the weights of single pixels vanish.
const RATIO_MAX: u32 = 64;

/// The old pixels that a new pixel covers along one edge.
struct Cover {
    first: usize,
    /// Parts of 256, one for each old pixel; their sum is 256.
    weights: Vec<u16>,
}

/// The picture with a longest edge of `edge` pixels. CPU-bound. `edge` is shorter than the present longest edge.
pub(super) fn scaled_down(image: DynamicImage, edge: u32) -> DynamicImage {
    let (width, height) = (image.width(), image.height());
    let longest = width.max(height);
    if longest / RATIO_MAX > edge {
        return image.thumbnail(edge, edge);
    }
    let scaled = |old: u32| {
        let rounded = (u64::from(old) * u64::from(edge) * 2 + u64::from(longest)) / (u64::from(longest) * 2);
        u32::try_from(rounded).unwrap_or(edge).max(1)
    };
    let (from, to) = ((width, height), (scaled(width), scaled(height)));
    let made = match &image {
        DynamicImage::ImageRgb8(old) => {
            RgbImage::from_raw(to.0, to.1, mean::<3>(old, from, to)).map(DynamicImage::from)
        }
        DynamicImage::ImageRgba8(old) => {
            RgbaImage::from_raw(to.0, to.1, mean::<4>(old, from, to)).map(DynamicImage::from)
        }
        DynamicImage::ImageLuma8(old) => {
            GrayImage::from_raw(to.0, to.1, mean::<1>(old, from, to)).map(DynamicImage::from)
        }
        // Rare: 16 bits for each value, and grey with transparency.
        _ => None,
    };
    made.unwrap_or_else(|| image.thumbnail(edge, edge))
}

/// The new pixels. First the rows of each new row are added, then the columns of each new pixel.
fn mean<const CHANNELS: usize>(pixels: &[u8], from: (u32, u32), to: (u32, u32)) -> Vec<u8> {
    let (columns, rows) = (covers(from.0, to.0), covers(from.1, to.1));
    let line = from.0 as usize * CHANNELS;
    // At most 128 + 255 * 256, so a sum fits.
    let mut sums = vec![0u16; line];
    let mut scaled = Vec::with_capacity(rows.len() * columns.len() * CHANNELS);
    for row in &rows {
        sums.fill(128);
        for (old, weight) in pixels[row.first * line..].chunks_exact(line).zip(&row.weights) {
            for (sum, value) in sums.iter_mut().zip(old) {
                *sum += u16::from(*value) * weight;
            }
        }
        let (means, _) = sums.as_chunks::<CHANNELS>();
        for column in &columns {
            let mut pixel = [128u32; CHANNELS];
            for (mean, weight) in means[column.first..].iter().zip(&column.weights) {
                for (sum, value) in pixel.iter_mut().zip(mean) {
                    *sum += u32::from(value >> 8) * u32::from(*weight);
                }
            }
            #[expect(clippy::cast_possible_truncation, reason = "a mean of bytes")]
            scaled.extend(pixel.map(|sum| (sum >> 8) as u8));
        }
    }
    scaled
}

/// The old pixels of each new one, along an edge.
fn covers(from: u32, to: u32) -> Vec<Cover> {
    let (from, to) = (u64::from(from), u64::from(to));
    let cover = |at: u64| {
        // In units of 1/to of an old pixel, in which a new pixel has the length `from`.
        let (begin, end) = (at * from, (at + 1) * from);
        let (first, last) = (begin / to, end.div_ceil(to));
        // Each weight is the difference of two rounded sums, so that the sum of all is 256.
        let sum_to = |edge: u64| (((edge * to).clamp(begin, end) - begin) * 256 + from / 2) / from;
        let weights = (first..last).map(|old| (sum_to(old + 1) - sum_to(old)) as u16).collect();
        Cover { first: first as usize, weights }
    };
    (0..to).map(cover).collect()
}

#[cfg(test)]
mod tests {
    use image::{Luma, LumaA, Rgb, Rgba};

    use super::*;

    #[test]
    fn each_new_pixel_is_the_mean_of_its_area() {
        // Two columns of 3 pixels become two of 1.5.
        let row = RgbImage::from_fn(3, 1, |x, _| Rgb([[0, 100, 200][x as usize], 10, 255]));
        let scaled = scaled_down(row.into(), 2).into_rgb8();
        let pixels: Vec<[u8; 3]> = scaled.pixels().map(|pixel| pixel.0).collect();
        assert_eq!(pixels, [[33, 10, 255], [167, 10, 255]]);
        let square = GrayImage::from_fn(4, 4, |x, y| Luma([if (x / 2 + y / 2) % 2 == 0 { 40 } else { 80 }]));
        let scaled = scaled_down(square.into(), 2).into_luma8();
        assert_eq!(scaled.into_raw(), [40, 80, 80, 40]);
    }

    #[test]
    fn an_even_picture_keeps_its_colour_at_every_size_and_its_shape() {
        for (width, height, edge) in [(4032, 3024, 1568), (1569, 3, 1568), (7, 5000, 100), (6400, 1, 100), (9, 9, 8)] {
            let longest = width.max(height);
            let scaled = |old: u32| (f64::from(old) * f64::from(edge) / f64::from(longest)).round().max(1.0);
            for image in [
                DynamicImage::from(RgbImage::from_pixel(width, height, Rgb([255, 0, 77]))),
                DynamicImage::from(RgbaImage::from_pixel(width, height, Rgba([1, 2, 3, 255]))),
                DynamicImage::from(GrayImage::from_pixel(width, height, Luma([254]))),
                DynamicImage::ImageLumaA8(image::ImageBuffer::from_pixel(width, height, LumaA([9, 200]))),
            ] {
                let colour = image::GenericImageView::get_pixel(&image, 0, 0);
                let small = scaled_down(image, edge);
                let shape = (f64::from(small.width()), f64::from(small.height()));
                assert_eq!(shape, (scaled(width), scaled(height)), "{width} x {height}");
                let is_even = image::GenericImageView::pixels(&small).all(|(_, _, pixel)| pixel == colour);
                assert!(is_even, "{width} x {height} {colour:?}");
            }
        }
    }

    #[test]
    fn the_weights_of_a_new_pixel_are_a_whole() {
        for (from, to) in [(3, 2), (4032, 1568), (64, 1), (1569, 1568), (100_352, 1568), (5, 5)] {
            for cover in covers(from, to) {
                assert_eq!(cover.weights.iter().sum::<u16>(), 256, "{from} {to}");
                assert!(cover.first + cover.weights.len() <= from as usize, "{from} {to}");
            }
        }
    }
}

//! Images for [`crate::Discardable`]: PNG and JPEG as 32-bit pixels, animated GIF as frames of 8-bit palette numbers.
//!
//! ```text
//!   Still: png, zune-jpeg ─► Picture (RGBA)
//!   Moving: gif ─► Animation: frames of palette numbers ─► Player: one RGBA canvas, drawn frame by frame
//! ```
//!
//! G1  A frame of a GIF stays as it is coded: its own rectangle, one byte a pixel, its palette once. That is a quarter
//!     of the 32-bit frames that most decoders make, and less where frames are smaller than the canvas (in Firefox 3
//!     the example was 368 MB of 32-bit frames, and 108 MB of palette frames).
//! G2  Before anything is allocated for pixels, the size that the file claims is compared with `limit_bytes`.
//! G3  The canvas of a [`Player`] equals the output of a decoder to 32-bit frames, pixel by pixel; going back draws
//!     from the first frame again.
//!
//! Not here: scaling, colour profiles, formats that only a browser needs.

use std::fmt;
use std::io::Cursor;

use crate::discard::Decode;
use crate::measure::HeapBytes;

/// Why an image could not be decoded.
#[derive(Debug)]
pub struct PictureError {
    what: String,
}

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for PictureError {}

fn error(what: impl fmt::Display) -> PictureError {
    PictureError {
        what: what.to_string(),
    }
}

/// Decoded pixels.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Red, green, blue, alpha of each pixel; row by row.
    pub pixels: Vec<u8>,
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a picture of {} x {}", self.width, self.height)
    }
}

impl HeapBytes for Picture {
    fn heap_bytes(&self) -> usize {
        self.pixels.heap_bytes()
    }
}

/// Decodes PNG and JPEG, told apart by their first bytes.
#[derive(Clone, Copy, Debug)]
pub struct Still {
    /// The most bytes that the pixels may have.
    pub limit_bytes: usize,
}

impl Default for Still {
    fn default() -> Self {
        Still {
            limit_bytes: 256 << 20,
        }
    }
}

impl Decode for Still {
    type Output = Picture;
    type Error = PictureError;

    fn decode(&self, source: &[u8]) -> Result<Picture, PictureError> {
        match source {
            [0x89, b'P', b'N', b'G', ..] => self.png(source),
            [0xFF, 0xD8, ..] => self.jpeg(source),
            _ => Err(error("offset 0: neither a PNG nor a JPEG")),
        }
    }
}

fn fits(width: usize, height: usize, each: usize, limit: usize) -> Result<(), PictureError> {
    let bytes = width
        .checked_mul(height)
        .and_then(|pixels| pixels.checked_mul(each));
    match bytes {
        Some(bytes) if bytes <= limit => Ok(()),
        _ => Err(error(format!(
            "{width} x {height} pixels need more than the limit of {limit} bytes; raise limit_bytes if the file can be trusted"
        ))),
    }
}

impl Still {
    fn png(&self, source: &[u8]) -> Result<Picture, PictureError> {
        let limits = png::Limits {
            bytes: self.limit_bytes,
        };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(source), limits);
        decoder.set_transformations(
            png::Transformations::normalize_to_color8() | png::Transformations::ALPHA,
        );
        let mut reader = decoder.read_info().map_err(error)?;
        let (width, height) = (reader.info().width, reader.info().height);
        fits(width as usize, height as usize, 4, self.limit_bytes)?;
        let bytes = reader
            .output_buffer_size()
            .ok_or_else(|| error("PNG: too large"))?;
        let mut pixels = vec![0; bytes];
        let frame = reader.next_frame(&mut pixels).map_err(error)?;
        pixels.truncate(frame.buffer_size());
        if frame.color_type == png::ColorType::GrayscaleAlpha {
            let rgba = |pair: &[u8]| [pair[0], pair[0], pair[0], pair[1]];
            pixels = pixels.chunks_exact(2).flat_map(rgba).collect();
        }
        Ok(Picture {
            width,
            height,
            pixels,
        })
    }

    fn jpeg(&self, source: &[u8]) -> Result<Picture, PictureError> {
        use zune_jpeg::JpegDecoder;
        use zune_jpeg::zune_core::bytestream::ZCursor;
        use zune_jpeg::zune_core::colorspace::ColorSpace;
        use zune_jpeg::zune_core::options::DecoderOptions;
        let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGBA);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(source), options);
        decoder
            .decode_headers()
            .map_err(|e| error(format!("JPEG: {e:?}")))?;
        let (width, height) = decoder.dimensions().ok_or_else(|| error("JPEG: no size"))?;
        fits(width, height, 4, self.limit_bytes)?;
        let pixels = decoder
            .decode()
            .map_err(|e| error(format!("JPEG: {e:?}")))?;
        Ok(Picture {
            width: width as u32,
            height: height as u32,
            pixels,
        })
    }
}

/// The disposal of a frame's rectangle before the next frame is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Stays,
    Cleared,
    AsBefore,
}

/// A frame as it is coded.
#[derive(Clone)]
pub struct Frame {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    then: Then,
    transparent: Option<u8>,
    /// The frame's own palette, if it has one: red, green, blue.
    palette: Option<Box<[u8]>>,
    /// Palette numbers, row by row.
    numbers: Box<[u8]>,
    /// How long the frame is shown, in hundredths of a second.
    pub delay_cs: u16,
}

/// An animated GIF, as palette frames.
#[derive(Clone)]
pub struct Animation {
    /// Width of the canvas in pixels.
    pub width: usize,
    /// Height of the canvas in pixels.
    pub height: usize,
    palette: Box<[u8]>,
    frames: Box<[Frame]>,
}

impl fmt::Debug for Animation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames of {} x {}",
            self.frames.len(),
            self.width,
            self.height
        )
    }
}

impl HeapBytes for Frame {
    fn heap_bytes(&self) -> usize {
        self.palette.heap_bytes() + self.numbers.heap_bytes()
    }
}

impl HeapBytes for Animation {
    fn heap_bytes(&self) -> usize {
        self.palette.heap_bytes() + self.frames.heap_bytes()
    }
}

/// Decodes GIF to palette frames.
#[derive(Clone, Copy, Debug)]
pub struct Moving {
    /// The most bytes that all frames together may have.
    pub limit_bytes: usize,
}

impl Default for Moving {
    fn default() -> Self {
        Moving {
            limit_bytes: 512 << 20,
        }
    }
}

impl Decode for Moving {
    type Output = Animation;
    type Error = PictureError;

    fn decode(&self, source: &[u8]) -> Result<Animation, PictureError> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::Indexed);
        if let Some(limit) = std::num::NonZeroU64::new(self.limit_bytes as u64) {
            options.set_memory_limit(gif::MemoryLimit::Bytes(limit));
        }
        let mut decoder = options.read_info(Cursor::new(source)).map_err(error)?;
        let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
        fits(width, height, 4, self.limit_bytes)?;
        let palette: Box<[u8]> = decoder.global_palette().unwrap_or(&[]).into();
        let mut frames = Vec::new();
        let mut bytes = 0;
        while let Some(frame) = decoder.read_next_frame().map_err(error)? {
            bytes += frame.buffer.len();
            if bytes > self.limit_bytes {
                let number = frames.len() + 1;
                return Err(error(format!(
                    "GIF: frames up to number {number} have more than limit_bytes, {}",
                    self.limit_bytes
                )));
            }
            frames.push(Frame {
                left: frame.left.into(),
                top: frame.top.into(),
                width: frame.width.into(),
                height: frame.height.into(),
                then: match frame.dispose {
                    gif::DisposalMethod::Background => Then::Cleared,
                    gif::DisposalMethod::Previous => Then::AsBefore,
                    gif::DisposalMethod::Any | gif::DisposalMethod::Keep => Then::Stays,
                },
                transparent: frame.transparent,
                palette: frame.palette.as_deref().map(Into::into),
                numbers: frame.buffer.as_ref().into(),
                delay_cs: frame.delay,
            });
        }
        Ok(Animation {
            width,
            height,
            palette,
            frames: frames.into(),
        })
    }
}

impl Animation {
    /// Returns the frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the bytes that the frames would have as 32-bit canvases.
    pub fn as_32_bit_bytes(&self) -> usize {
        self.frames.len() * self.width * self.height * 4
    }
}

/// Draws an animation into one canvas.
#[derive(Debug)]
pub struct Player<'a> {
    animation: &'a Animation,
    canvas: Vec<u8>,
    /// What the last frame covers, if it is to be restored.
    before: Vec<u8>,
    /// The index of the next frame to be drawn.
    next: usize,
}

impl<'a> Player<'a> {
    /// Creates a player at the first frame.
    pub fn new(animation: &'a Animation) -> Player<'a> {
        Player {
            animation,
            canvas: vec![0; animation.width * animation.height * 4],
            before: Vec::new(),
            next: 0,
        }
    }

    /// Returns the canvas as it is while a frame is shown: red, green, blue, alpha. `None`: there is no such frame.
    /// Cost forwards: drawing the frames between; backwards: all frames from the first one.
    pub fn show(&mut self, number: usize) -> Option<&[u8]> {
        if number >= self.animation.frames.len() {
            return None;
        }
        if number + 1 < self.next {
            self.canvas.fill(0);
            self.next = 0;
        }
        while self.next <= number {
            if let Some(last) = self.next.checked_sub(1) {
                self.dispose(&self.animation.frames[last]);
            }
            self.draw(&self.animation.frames[self.next]);
            self.next += 1;
        }
        Some(&self.canvas)
    }

    /// Returns the part of each row of a frame that lies on the canvas: (offset in the canvas, offset in the frame,
    /// pixels).
    fn rows(&self, frame: &Frame) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (width, height) = (self.animation.width, self.animation.height);
        let (left, top, across) = (frame.left, frame.top, frame.width);
        let pixels = across.min(width.saturating_sub(left));
        let rows = frame.height.min(height.saturating_sub(top));
        (0..rows).map(move |row| ((top + row) * width + left, row * across, pixels))
    }

    fn dispose(&mut self, frame: &Frame) {
        let mut from = 0;
        for (at, _, pixels) in self.rows(frame) {
            let place = &mut self.canvas[at * 4..(at + pixels) * 4];
            match frame.then {
                Then::Stays => return,
                Then::Cleared => place.fill(0),
                Then::AsBefore => place.copy_from_slice(&self.before[from..from + pixels * 4]),
            }
            from += pixels * 4;
        }
    }

    fn draw(&mut self, frame: &Frame) {
        let palette = frame.palette.as_deref().unwrap_or(&self.animation.palette);
        if frame.then == Then::AsBefore {
            self.before.clear();
        }
        for (at, from, pixels) in self.rows(frame) {
            let place = &mut self.canvas[at * 4..(at + pixels) * 4];
            if frame.then == Then::AsBefore {
                self.before.extend_from_slice(place);
            }
            let numbers = &frame.numbers[from..from + pixels];
            for (pixel, number) in place.chunks_exact_mut(4).zip(numbers) {
                let colour = palette.get(usize::from(*number) * 3..usize::from(*number) * 3 + 3);
                if let Some(colour) = colour.filter(|_| frame.transparent != Some(*number)) {
                    pixel[..3].copy_from_slice(colour);
                    pixel[3] = 255;
                }
            }
        }
    }
}

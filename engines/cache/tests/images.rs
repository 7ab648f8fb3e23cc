//! Discardable images: real files by real encoders, decoded, dropped, decoded again; palette frames against a judge.
//!
//! ```text
//!   pixels by seed ─► netpbm (pnmtopng, pnmtojpeg, ppmtogif), gifsicle ─► files ─► Discardable ─► resident memory
//!                                                                          └─► the crate `image`: the judge
//! ```
//!
//! P1  The encoders must be there: a missing one is a failure, and `make test-deps` installs them.
//! P2  Resident memory is the kernel's word, of the whole process; each test that measures it is a process of its own.
//!
//! Not here: damaged files of every kind; those are the decoders' own business, and only some samples are tried.
#![cfg(feature = "images")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Bus, Options, Trim, resident};
use skinflint_cache::discard::Decode;
use skinflint_cache::pictures::{Moving, Player, Still};
use skinflint_cache::store::Clock;
use skinflint_cache::{Discardable, Discards, HeapBytes};
use skinflint_test_support::{artifact, need};

const INSIDE: &str = "SKINFLINT_TEST_INSIDE";

/// A picture with grain, as photographs have: a smooth field and noise by seed.
fn pixels(width: usize, height: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = format!("P6\n{width} {height}\n255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let grain = (state >> 61) as usize;
            let of = |by: usize| {
                ((x * by / 97 + y * (4 - by) / 61 + seed as usize * 13) % 240 + grain) as u8
            };
            out.extend_from_slice(&[of(1), of(2), of(3)]);
        }
    }
    out
}

fn through(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program} {args:?}");
    output.stdout
}

fn judged(source: &[u8]) -> (u32, u32, Vec<u8>) {
    let image = image::load_from_memory(source).unwrap().to_rgba8();
    (image.width(), image.height(), image.into_raw())
}

#[test]
fn stills_are_what_another_decoder_sees() {
    if !need::programs(&["pnmtopng", "ppmtopgm", "pnmtojpeg"]) {
        return;
    }
    let ppm = pixels(301, 173, 1);
    let png = through("pnmtopng", &[], &ppm);
    let picture = Still::default().decode(&png).unwrap();
    assert_eq!(
        (picture.width, picture.height, picture.pixels.clone()),
        judged(&png)
    );
    assert_eq!(&picture.pixels[..3], &ppm[ppm.len() - 301 * 173 * 3..][..3]);
    let grey = through("pnmtopng", &[], &through("ppmtopgm", &[], &ppm));
    assert_eq!(
        Still::default().decode(&grey).unwrap().pixels,
        judged(&grey).2
    );
    let jpeg = through("pnmtojpeg", &["-quality", "85"], &ppm);
    let picture = Still::default().decode(&jpeg).unwrap();
    let (width, height, judged) = judged(&jpeg);
    assert_eq!((picture.width, picture.height), (width, height));
    // Two decoders may round a colour differently, by a step or two.
    assert!(
        picture
            .pixels
            .iter()
            .zip(&judged)
            .all(|(a, b)| a.abs_diff(*b) <= 3)
    );
}

#[test]
fn what_is_no_image_is_an_error_that_says_why() {
    if !need::programs(&["pnmtopng", "ppmtopgm", "pnmtojpeg"]) {
        return;
    }
    let png = through("pnmtopng", &[], &pixels(64, 64, 2));
    let says = |source: &[u8], still: Still| still.decode(source).unwrap_err().to_string();
    assert!(says(b"GIF89a", Still::default()).contains("offset 0"));
    assert!(says(&png, Still { limit_bytes: 1_000 }).contains("limit"));
    for cut in (0..png.len()).step_by(97) {
        assert!(!says(&png[..cut], Still::default()).is_empty());
    }
    let gif = animation(40, 40, 5);
    let moving = Moving { limit_bytes: 4_000 };
    assert!(!moving.decode(&gif).unwrap_err().to_string().is_empty());
    for cut in (0..gif.len() - 1).step_by(31) {
        // A cut file may have its first frames; it must not panic.
        let _ = Moving::default().decode(&gif[..cut]);
    }
}

/// Returns the first bytes of a PNG that claims this many pixels, and has none.
fn claims(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgba);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::IDAT, &[0x78]).unwrap();
    std::mem::forget(writer);
    file
}

#[test]
fn a_limit_is_met_to_the_byte_and_is_a_quarter_of_a_gibibyte_unless_said() {
    let says = |source: &[u8], still: Still| still.decode(source).unwrap_err().to_string();
    // 8,192 x 8,192 pixels of four bytes: what is missing then is their data.
    let within = says(&claims(8_192, 8_192), Still::default());
    assert!(!within.contains("limit"), "{within}");
    let beyond = says(&claims(8_192, 8_193), Still::default());
    assert!(beyond.contains("8192 x 8193"), "{beyond}");
    let mut jpeg = Vec::new();
    let image = image::RgbImage::from_pixel(24, 16, image::Rgb([90, 120, 200]));
    image
        .write_to(
            &mut std::io::Cursor::new(&mut jpeg),
            image::ImageFormat::Jpeg,
        )
        .unwrap();
    let of = |limit_bytes| Still { limit_bytes };
    assert_eq!(of(1_536).decode(&jpeg).unwrap().pixels.len(), 1_536);
    assert!(says(&jpeg, of(1_535)).contains("24 x 16"));
}

#[test]
fn what_no_frame_covers_is_clear_again_after_going_back() {
    let palette = [0, 0, 0, 255, 0, 0, 0, 255, 0];
    let mut file = Vec::new();
    let mut encoder = gif::Encoder::new(&mut file, 4, 4, &palette).unwrap();
    for (at, colour) in [(0, 1), (2, 2)] {
        let mut frame = gif::Frame::from_indexed_pixels(2, 2, [colour; 4], None);
        (frame.left, frame.top) = (at, at);
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    let animation = Moving::default().decode(&file).unwrap();
    let mut player = Player::new(&animation);
    let first = player.show(0).unwrap().to_vec();
    let of = |canvas: &[u8], x: usize, y: usize| canvas[(y * 4 + x) * 4..][..4].to_vec();
    assert_eq!(of(&first, 1, 1), [255, 0, 0, 255]);
    assert_eq!(of(&first, 2, 2), [0; 4]);
    let second = player.show(1).unwrap().to_vec();
    assert_eq!(of(&second, 1, 1), [255, 0, 0, 255]);
    assert_eq!(of(&second, 3, 3), [0, 255, 0, 255]);
    assert_eq!(player.show(0).unwrap(), first);
}

/// A GIF whose frames have transparency, rectangles of their own and all ways of disposal.
fn animation(width: usize, height: usize, frames: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut args: Vec<String> = ["-O2", "--delay=5", "--loop"].map(String::from).to_vec();
    for number in 0..frames {
        let ppm = pixels(width, height, number as u64 + 10);
        let gif = through("ppmtogif", &[], &through("pnmquant", &["200"], &ppm));
        let file = folder.path().join(format!("{number}.gif"));
        std::fs::write(&file, gif).unwrap();
        args.push(format!(
            "--disposal={}",
            ["none", "background", "previous", "asis"][number % 4]
        ));
        if number % 4 != 0 {
            args.push(format!(
                "--crop={},{}+{}x{}",
                number,
                number / 2,
                width / 2,
                height / 3
            ));
            args.push(format!(
                "--position={},{}",
                (number * 7) % (width / 2),
                (number * 5) % (height / 2)
            ));
        } else {
            args.push("--no-crop".into());
            args.push("--position=0,0".into());
        }
        args.push(file.display().to_string());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    through("gifsicle", &args, b"")
}

#[test]
fn palette_frames_draw_what_32_bit_frames_show() {
    if !need::programs(&["gifsicle", "pnmquant", "ppmtogif"]) {
        return;
    }
    use image::AnimationDecoder;
    let gif = animation(120, 90, 13);
    let decoder = image::codecs::gif::GifDecoder::new(std::io::Cursor::new(&gif)).unwrap();
    let judge: Vec<Vec<u8>> = decoder
        .into_frames()
        .map(|frame| frame.unwrap().into_buffer().into_raw())
        .collect();
    let animation = Moving::default().decode(&gif).unwrap();
    assert_eq!((animation.frames().len(), judge.len()), (13, 13));
    let mut player = Player::new(&animation);
    for number in (0..13).chain([3, 12, 0, 7]) {
        let drawn = player.show(number).unwrap();
        let wrong = drawn
            .chunks_exact(4)
            .zip(judge[number].chunks_exact(4))
            // What is transparent may have any colour.
            .filter(|(a, b)| a != b && (a[3] != 0 || b[3] != 0))
            .count();
        assert_eq!(wrong, 0, "frame {number}");
    }
    assert!(player.show(13).is_none());
}

#[test]
fn an_animation_is_a_quarter_of_its_32_bit_frames() {
    if !need::programs(&["gifsicle", "pnmquant", "ppmtogif"]) {
        return;
    }
    // Frames of the whole canvas: the worst case.
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = (0..30)
        .map(|number| {
            let gif = through(
                "ppmtogif",
                &[],
                &through("pnmquant", &["256"], &pixels(400, 300, number)),
            );
            let file = folder.path().join(format!("{number}.gif"));
            std::fs::write(&file, gif).unwrap();
            file.display().to_string()
        })
        .collect();
    let mut args = vec!["--no-conserve-memory", "--delay=5"];
    args.extend(files.iter().map(String::as_str));
    let gif = through("gifsicle", &args, b"");
    let animation = Moving::default().decode(&gif).unwrap();
    assert_eq!(animation.frames().len(), 30);
    // With the canvas that they are drawn into.
    let held = animation.heap_bytes() + 400 * 300 * 4;
    let ratio = held as f64 / animation.as_32_bit_bytes() as f64;
    println!(
        "animated GIF: {held} bytes, {:.3} of {} as 32-bit frames",
        ratio,
        animation.as_32_bit_bytes()
    );
    assert!(ratio <= 0.3, "{ratio}");
}

#[test]
fn pins_and_waits_decide_what_stays() {
    if !need::programs(&["pnmtopng", "ppmtopgm", "pnmtojpeg"]) {
        return;
    }
    let clock = Clock::by_hand();
    let set = Discards::new("images", Duration::from_secs(10), clock.clone());
    let png = through("pnmtopng", &[], &pixels(100, 100, 3));
    let items: Vec<Discardable<Still>> = (0..4).map(|_| set.add(&png, Still::default())).collect();
    assert_eq!((set.stats().items, set.stats().decoded_bytes), (4, 0));
    let pinned = items[0].pin().unwrap();
    let bytes = pinned.heap_bytes();
    drop(items[1].pin().unwrap());
    clock.advance(Duration::from_secs(6));
    drop(items[2].pin().unwrap());
    // Blocks of one size may differ by some bytes: glibc leaves no rest that is too small for a block.
    let about = |count: usize, held: usize| held >= count * bytes && held < count * (bytes + 100);
    assert!(about(3, set.stats().decoded_bytes));
    clock.advance(Duration::from_secs(4));
    assert!(about(1, set.sweep()));
    let decoded = || {
        items
            .iter()
            .map(Discardable::is_decoded)
            .collect::<Vec<_>>()
    };
    assert_eq!(decoded(), [true, false, true, false]);
    // At the critical level everything goes but what is pinned.
    assert!(about(1, set.discard_bytes(usize::MAX)));
    assert_eq!(decoded(), [true, false, false, false]);
    assert_eq!(pinned.pixels, items[1].pin().unwrap().pixels);
    drop(pinned);
    clock.advance(Duration::from_secs(11));
    set.sweep();
    let stats = set.stats();
    assert_eq!(
        (
            stats.decoded_bytes,
            stats.decodes,
            stats.pins,
            stats.discarded
        ),
        (0, 4, 4, 4)
    );
    drop(items);
    assert_eq!((set.stats().items, set.stats().source_bytes), (0, 0));
    let broken = set.add(b"\xFF\xD8 no more than that", Still::default());
    assert!(
        broken.pin().is_err() && broken.pin().is_err(),
        "asked twice, it fails twice and does not hang"
    );
}

#[test]
fn threads_that_want_the_same_wait_for_one_decoder() {
    if !need::programs(&["pnmtopng", "ppmtopgm", "pnmtojpeg"]) {
        return;
    }
    let set = Discards::new("images", Duration::ZERO, Clock::real());
    let png = through("pnmtopng", &[], &pixels(400, 400, 4));
    let item = set.add(&png, Still::default());
    let gate = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                gate.wait();
                let pinned = item.pin().unwrap();
                gate.wait();
                assert_eq!(pinned.pixels.len(), 400 * 400 * 4);
            });
        }
    });
    assert_eq!(set.stats().decodes, 1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..40).for_each(|_| assert_eq!(item.pin().unwrap().width, 400)));
        }
        scope.spawn(|| (0..400).for_each(|_| assert!(set.discard_bytes(usize::MAX) < 1 << 20)));
    });
    set.sweep();
    assert_eq!(set.stats().decoded_bytes, 0);
}

/// The bar: 100 large images that are not in view have at most 1.1 times their compressed size, within 30 s.
#[test]
fn a_page_of_100_images_shrinks_to_what_is_compressed() {
    if !need::programs(&["pnmtopng", "ppmtopgm", "pnmtojpeg"]) {
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let library = artifact::built("skinflint-malloc-so");
    // glibc keeps the top of a thread's arena, some MB that would count for the start and not for the page.
    let output = Command::new(exe)
        .env("LD_PRELOAD", library)
        .args(["--exact", "inside_page", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    println!(
        "{}",
        text.lines()
            .filter(|l| l.starts_with("page:"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert!(
        output.status.success() && text.contains("page: held"),
        "{text}"
    );
}

#[test]
fn inside_page() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    // 100 images of ten files: the memory that is held counts, not what it shows. Made before anything is measured.
    let files: Vec<Vec<u8>> = (0..10)
        .map(|number| match number % 2 {
            0 => through(
                "pnmtojpeg",
                &["-quality", "90"],
                &pixels(1_400, 1_000, number),
            ),
            _ => through(
                "pnmtopng",
                &["-compression", "1"],
                &pixels(900, 700, number),
            ),
        })
        .collect();
    let bus = Bus::start(Options::default()).unwrap();
    Trim::find().run();
    let start = resident().unwrap();
    let clock = Clock::by_hand();
    let set = Discards::new("images", Duration::from_secs(2), clock.clone());
    bus.join(&set);
    let page: Vec<Discardable<Still>> = (0..100)
        .map(|at| set.add(&files[at % 10], Still::default()))
        .collect();
    let compressed: usize = page.iter().map(|image| image.source().len()).sum();
    // All images are in view.
    let mut most = 0;
    let (mut sum, mut shown) = (0u64, Vec::new());
    for image in &page {
        shown.push(image.pin().unwrap());
        sum += shown
            .last()
            .unwrap()
            .pixels
            .iter()
            .map(|b| u64::from(*b))
            .sum::<u64>();
    }
    most = most.max(resident().unwrap() - start);
    let all: usize = set.stats().decoded_bytes;
    drop(shown);
    clock.advance(Duration::from_secs(3));
    let end = Instant::now() + Duration::from_secs(60);
    let mut held = usize::MAX;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
        held = resident().unwrap().saturating_sub(start);
        if held as f64 <= compressed as f64 * 1.1 {
            break;
        }
    }
    let then = resident().unwrap();
    assert!(
        most > all && all > 4 * compressed,
        "the test would show nothing: {most}"
    );
    let again: u64 = page
        .iter()
        .map(|i| {
            i.pin()
                .unwrap()
                .pixels
                .iter()
                .map(|b| u64::from(*b))
                .sum::<u64>()
        })
        .sum();
    assert_eq!(sum, again);
    // The floor is what is there without the page: what was free at the start does not count for it.
    drop(page);
    Trim::find().run();
    held = held.max(then.saturating_sub(resident().unwrap()));
    println!(
        "page: held {held} bytes for {compressed} compressed ({:.3}) when it was hidden; decoded {all}, most {most}",
        held as f64 / compressed as f64,
    );
    assert!(held as f64 <= compressed as f64 * 1.1);
    drop(Arc::clone(&set));
}

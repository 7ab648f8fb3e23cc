//! Servers of every kind, each for one request.

use std::io::Write;
use std::net::TcpListener;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::served::profile::tests::of_go;

/// Answers one request with these bytes, then closes; returns where.
fn serving(answer: Vec<u8>) -> ProfileUrl {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let _ = stream.read(&mut [0; 2048]);
        let _ = stream.write_all(&answer);
    });
    ProfileUrl::parse(&format!("http://127.0.0.1:{port}")).expect("an address")
}

fn whole(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("memory");
    packed.finish().expect("memory")
}

const PATIENCE: Duration = Duration::from_secs(60);

fn refused(answer: Vec<u8>) -> String {
    let trouble = serving(answer).fetch(PATIENCE).expect_err("no profile");
    assert!(matches!(trouble, Trouble::Wrong(_)), "{trouble:?}");
    trouble.words().into()
}

#[test]
fn a_profile_comes_zipped_or_not() {
    let profile = of_go([12, 524_288], [25, 1_048_576], 40_960);
    let wanted = Profile::read(&profile).expect("a heap profile");
    for body in [profile.clone(), zipped(&profile)] {
        assert_eq!(serving(whole(&body)).fetch(PATIENCE), Ok(wanted.clone()));
    }
}

#[test]
fn what_is_wrong_is_said_and_what_to_do() {
    assert!(
        refused(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec())
            .contains("status 404")
    );
    assert!(refused(whole(b"heap profile: 1: 2 [3: 4] @ heap/1048576\n")).contains("debug=1"));
    assert!(refused(whole(b"<html>hello</html>")).contains("<html>hello</html>"));
    let profile = zipped(&of_go([12, 524_288], [25, 1_048_576], 40_960));
    assert!(refused(whole(&profile[..profile.len() / 2])).contains("cut off"));
    // Less than it promised.
    let mut cut = whole(&profile);
    cut.truncate(cut.len() - 5);
    assert!(!refused(cut).is_empty());
    assert!(refused(b"220 mail.example ESMTP\r\n".to_vec()).len() > 5);
}

#[test]
fn an_answer_without_end_is_given_up() {
    let large = whole(&vec![0; MOST_BYTES as usize + 1]);
    assert!(refused(large).contains("more than 64 MiB"));
    let bomb = zipped(&vec![0; MOST_BYTES as usize + 1]);
    assert!(refused(whole(&bomb)).contains("more than 64 MiB"));
    // It accepts, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let url = ProfileUrl::parse(&url).expect("an address");
    let trouble = url.fetch(Duration::from_millis(50)).expect_err("no answer");
    assert!(trouble.words().contains("within 50ms"), "{trouble:?}");
}

#[test]
fn where_nothing_listens_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let trouble = ProfileUrl::parse(&url).expect("an address").fetch(PATIENCE);
    assert!(matches!(trouble, Err(Trouble::Silent(_))), "{trouble:?}");
}

#[test]
fn addresses_are_completed_or_refused() {
    let of = |text| ProfileUrl::parse(text).map(|url| url.as_str().to_owned());
    assert_eq!(
        of("http://localhost:6060").as_deref(),
        Ok("http://localhost:6060/debug/pprof/heap")
    );
    assert_eq!(
        of("http://[::1]:6060/").as_deref(),
        Ok("http://[::1]:6060/debug/pprof/heap")
    );
    assert_eq!(
        of("http://host:1/mem?gc=1").as_deref(),
        Ok("http://host:1/mem?gc=1")
    );
    assert!(
        of("https://localhost:1")
            .expect_err("TLS")
            .contains("no TLS")
    );
    for text in ["localhost:6060", "http://", "http:///path", "6060"] {
        assert!(
            of(text).expect_err("no address").contains("as in"),
            "{text}"
        );
    }
}

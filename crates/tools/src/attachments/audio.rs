//! Recordings: their format and their length, as the file itself says. Pure; a hostile file gives a wrong length or
//! none.

use belay_protocol::AudioFormat;

/// The rate at which Opus counts samples. Source: RFC 7845, section 4.
const OPUS_RATE: u64 = 48_000;

/// Bytes at the beginning of a WebM file that name its tracks.
const TRACKS_MAX_BYTES: usize = 64 * 1024;

/// The format of audio with this media type; `None`: a format that is not transcribed.
pub(super) fn format_of(media_type: &str, bytes: &[u8]) -> Option<AudioFormat> {
    Some(match media_type {
        "audio/opus" => AudioFormat::OggOpus,
        "audio/ogg" => AudioFormat::Ogg,
        "audio/mpeg" => AudioFormat::Mp3,
        "audio/m4a" => AudioFormat::M4a,
        "audio/x-wav" => AudioFormat::Wav,
        "audio/x-flac" => AudioFormat::Flac,
        "video/webm" if is_audio_alone(bytes) => AudioFormat::Webm,
        _ => return None,
    })
}

/// Whether a WebM file has audio and no video, by the names of its codecs. Source: Matroska, "Codec Mappings".
fn is_audio_alone(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(TRACKS_MAX_BYTES)];
    let has = |name: &[u8]| find(head, name).is_some();
    (has(b"A_OPUS") || has(b"A_VORBIS")) && !has(b"V_VP8") && !has(b"V_VP9") && !has(b"V_AV1")
}

/// The length of a recording in seconds, rounded up; `None`: the file does not say it.
pub(super) fn seconds_of(format: AudioFormat, bytes: &[u8]) -> Option<u64> {
    let (samples, rate) = match format {
        AudioFormat::OggOpus => {
            let head = find(bytes, b"OpusHead")?;
            let skipped = u64::from(u16::from_le_bytes(array(bytes, head + 10)?));
            (last_granule(bytes)?.saturating_sub(skipped), OPUS_RATE)
        }
        AudioFormat::Ogg => {
            let head = find(bytes, b"\x01vorbis")?;
            (last_granule(bytes)?, u64::from(u32::from_le_bytes(array(bytes, head + 12)?)))
        }
        AudioFormat::Mp3 => mp3(bytes)?,
        AudioFormat::M4a => m4a(bytes)?,
        AudioFormat::Wav => wav(bytes)?,
        AudioFormat::Flac => flac(bytes)?,
        AudioFormat::Webm => return None,
    };
    (rate > 0).then(|| samples.div_ceil(rate))
}

/// The position of the last page of an Ogg file, in samples. Source: RFC 3533, section 6.
fn last_granule(bytes: &[u8]) -> Option<u64> {
    let page = bytes.windows(4).rposition(|four| four == b"OggS")?;
    // The largest number means that no packet ends on this page.
    Some(u64::from_le_bytes(array(bytes, page + 6)?)).filter(|granule| *granule != u64::MAX)
}

/// Bytes of sound and bytes of each second. Source: "Multimedia Programming Interface and Data Specifications 1.0".
fn wav(bytes: &[u8]) -> Option<(u64, u64)> {
    let format = find(bytes, b"fmt ")?;
    let rate = u64::from(u32::from_le_bytes(array(bytes, format + 16)?));
    let data = find(bytes, b"data")?;
    let said = u64::from(u32::from_le_bytes(array(bytes, data + 4)?));
    Some((said.min((bytes.len() - data) as u64), rate))
}

/// Samples and samples of each second. Source: RFC 9639, section 8.2.
fn flac(bytes: &[u8]) -> Option<(u64, u64)> {
    let packed = u64::from_be_bytes(array(bytes, 18)?);
    Some((packed & 0xf_ffff_ffff, packed >> 44))
}

/// Time units and time units of each second. Source: ISO/IEC 14496-12, `mvhd`.
fn m4a(bytes: &[u8]) -> Option<(u64, u64)> {
    let head = find(bytes, b"mvhd")? + 4;
    match bytes.get(head)? {
        0 => {
            let (rate, length) = (array(bytes, head + 12)?, array(bytes, head + 16)?);
            Some((u32::from_be_bytes(length).into(), u32::from_be_bytes(rate).into()))
        }
        _ => {
            let (rate, length) = (array(bytes, head + 20)?, array(bytes, head + 24)?);
            Some((u64::from_be_bytes(length), u32::from_be_bytes(rate).into()))
        }
    }
}

/// Bits and bits of each second, if every frame has the rate of the first one. Source: ISO/IEC 11172-3, section 2.4.2.3;
/// ID3v2.4, section 3.1.
fn mp3(bytes: &[u8]) -> Option<(u64, u64)> {
    /// Kilobits of each second by the index in the header of a frame: MPEG 1, then MPEG 2 and 2.5, both layer III.
    const RATES: [[u64; 16]; 2] = [
        [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0],
        [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0],
    ];
    let tag = match array::<4>(bytes, 6) {
        Some(size) if bytes.starts_with(b"ID3") => {
            10 + size.iter().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f))
        }
        _ => 0,
    };
    let sound = bytes.get(tag..)?;
    let [first, second, third, _] = array::<4>(sound, 0)?;
    if first != 0xff || second & 0xe6 != 0xe2 {
        return None; // not layer III
    }
    let version = usize::from(second & 0x18 != 0x18);
    let rate = RATES[version][usize::from(third >> 4)] * 1000;
    Some((sound.len() as u64 * 8, rate))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMATS: [AudioFormat; 7] = [
        AudioFormat::OggOpus,
        AudioFormat::Ogg,
        AudioFormat::Mp3,
        AudioFormat::M4a,
        AudioFormat::Wav,
        AudioFormat::Flac,
        AudioFormat::Webm,
    ];

    /// A page of an Ogg file with this position and content.
    fn page(granule: u64, content: &[u8]) -> Vec<u8> {
        let count = [content.len() as u8];
        [b"OggS\0\x02", &granule.to_le_bytes()[..], &[0; 12], &[1], &count, content].concat()
    }

    fn opus(samples: u64) -> Vec<u8> {
        let head = [b"OpusHead\x01\x01".as_slice(), &312u16.to_le_bytes(), &48_000u32.to_le_bytes(), &[0; 3]].concat();
        [page(0, &head), page(samples, b"sound")].concat()
    }

    #[test]
    fn the_length_of_a_recording_is_read_from_the_file() {
        let vorbis = [b"\x01vorbis\0\0\0\0\x01".as_slice(), &44_100u32.to_le_bytes()].concat();
        let vorbis = [page(0, &vorbis), page(44_100 * 3, b"sound")].concat();
        let wav_head = [b"RIFF....WAVEfmt \x10\0\0\0\x01\0\x01\0".as_slice(), &8000u32.to_le_bytes()].concat();
        let wav = |said: u32| {
            let rate = 16_000u32.to_le_bytes();
            [&wav_head, &rate[..], b"\x02\0\x10\0data", &said.to_le_bytes(), &[0; 40_000]].concat()
        };
        let flac = [b"fLaC\0\0\0\x22".as_slice(), &[0; 10], &(44_100u64 << 44 | 441_000).to_be_bytes()].concat();
        let mvhd = [b"....mvhd\0\0\0\0........".as_slice(), &600u32.to_be_bytes(), &6001u32.to_be_bytes()].concat();
        let tagged = [b"ID3\x04\0\0\0\0\x01\0".as_slice(), &[0; 128], b"\xff\xfb\x90\x00", &[0; 31_996]].concat();
        for (format, bytes, expected) in [
            (AudioFormat::OggOpus, opus(12 * 48_000 + 312), Some(12)),
            (AudioFormat::OggOpus, opus(12 * 48_000 + 313), Some(13)),
            (AudioFormat::OggOpus, page(0, b"OpusHead"), None),
            (AudioFormat::Ogg, vorbis, Some(3)),
            (AudioFormat::Wav, wav(32_000), Some(2)),
            (AudioFormat::Wav, wav(u32::MAX), Some(3)),
            (AudioFormat::Flac, flac, Some(10)),
            (AudioFormat::M4a, mvhd, Some(11)),
            (AudioFormat::Mp3, tagged, Some(2)),
            (AudioFormat::Mp3, b"\xff\xfd\x90\x00".to_vec(), None),
            (AudioFormat::Webm, b"\x1aE\xdf\xa3".to_vec(), None),
        ] {
            assert_eq!(seconds_of(format, &bytes), expected, "{format:?}");
        }
    }

    #[test]
    fn a_film_is_no_recording() {
        assert_eq!(format_of("video/webm", b"\x1aE\xdf\xa3 webm A_OPUS"), Some(AudioFormat::Webm));
        assert_eq!(format_of("video/webm", b"\x1aE\xdf\xa3 webm A_OPUS V_VP9"), None);
        assert_eq!(format_of("video/mp4", b"ftyp"), None);
        assert_eq!(format_of("audio/midi", b"MThd"), None);
    }

    proptest! {
        #[test]
        fn no_file_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let marks = [&b"OggS"[..], b"OpusHead", b"\x01vorbis", b"fmt ", b"data", b"mvhd", b"fLaC", b"ID3", b"\xff\xfb"];
            for format in FORMATS {
                for mark in marks {
                    let at = at.min(bytes.len());
                    let _ = seconds_of(format, &[&bytes[..at], mark, &bytes[at..]].concat());
                }
            }
        }
    }
}

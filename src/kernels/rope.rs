//! Rotary position embedding, half-split: value `i` pairs with value `i + head_dim / 2`.

/// Frequencies of a rope, in radians a position, one a pair (Su et al., 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f32>,
    /// Factor of what is turned.
    scale: f32,
}

impl Rope {
    /// The rope with these frequencies, for heads of twice as many values.
    #[must_use]
    pub fn new(frequencies: Vec<f32>) -> Self {
        let scale = 1.0;
        Self { frequencies, scale }
    }

    /// The same, with what is turned multiplied by `scale` (YaRN).
    #[must_use]
    pub fn scaled(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Values of the table of one position: as many as a head has.
    #[must_use]
    pub fn width(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Writes the cosines, then the sines, of `position`. The angle is rounded to `f32` as it was
    /// in training.
    pub fn table(&self, position: usize, out: &mut [f32]) {
        let (cos, sin) = out.split_at_mut(self.frequencies.len());
        #[expect(clippy::cast_precision_loss, reason = "rounded as trained")]
        let position = position as f32;
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            let (s, c) = f64::from(position * frequency).sin_cos();
            #[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
            let single = (s as f32, c as f32);
            (*sin, *cos) = (single.0 * self.scale, single.1 * self.scale);
        }
    }

    /// Turns every head of `row` (`[heads, head_dim]`) by the angles of `table`.
    pub fn turn(&self, row: &mut [f32], table: &[f32]) {
        let half = self.frequencies.len();
        if half == 0 {
            return;
        }
        let (cos, sin) = table.split_at(half);
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

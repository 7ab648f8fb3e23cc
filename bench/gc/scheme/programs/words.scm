; Counts SIZE words, of which a quarter are different, in association lists behind a vector of 1,024.
(define buckets (make-vector 1024 '()))

(define (hash text)
  (let ((length (string-length text)))
    (let loop ((at 0) (sum 7))
      (if (= at length)
          (remainder sum 1024)
          (loop (+ at 1) (remainder (+ (* sum 31) (string-byte text at)) 1000003))))))

; The list with one more for the word; pairs do not change, so what is before it is made anew.
(define (counted list word)
  (cond ((null? list) (cons (cons word 1) '()))
        ((equal? (car (car list)) word)
         (cons (cons word (+ 1 (cdr (car list)))) (cdr list)))
        (else (cons (car list) (counted (cdr list) word)))))

(define (note word)
  (let ((bucket (hash word)))
    (vector-set! buckets bucket (counted (vector-ref buckets bucket) word))))

(define different (quotient SIZE 4))

(let loop ((number 0))
  (when (< number SIZE)
    (note (string-append "word-" (number->string (remainder (* number 7919) different))))
    (loop (+ number 1))))

(define words 0)
(define total 0)
(let each ((bucket 0))
  (when (< bucket 1024)
    (let loop ((list (vector-ref buckets bucket)))
      (when (pair? list)
        (set! words (+ words 1))
        (set! total (+ total (cdr (car list))))
        (loop (cdr list))))
    (each (+ bucket 1))))

(display words)
(display " ")
(display total)
(display "\n")

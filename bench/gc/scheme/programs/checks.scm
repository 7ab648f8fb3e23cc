; What the language is: each line is #t if it holds.
(define (check what is) (display what) (display ": ") (display is) (display "\n"))

; A million calls in tail position need no stack, of one function or of two.
(define (down n) (if (= n 0) #t (down (- n 1))))
(check "tail" (down SIZE))
(define (even? n) (or (= n 0) (odd? (- n 1))))
(define (odd? n) (and (not (= n 0)) (even? (- n 1))))
(check "two" (even? SIZE))

; Closures share what is assigned to, and copy what is not.
(define (counter)
  (let ((n 0)) (list (lambda () (set! n (+ n 1)) n) (lambda () n))))
(define one (counter))
(define other (counter))
((car one))
((car one))
((car other))
(check "closures" (equal? (list ((car (cdr one))) ((car (cdr other)))) '(2 1)))

; More than three captured values.
(define (five a b c d e) (lambda () (list a b c d e)))
(check "captured" (equal? ((five 1 2 3 4 5)) '(1 2 3 4 5)))

(define (local x)
  (define (twice y) (* 2 y))
  (define z (twice x))
  (+ z 1))
(check "define" (= (local 20) 41))
(check "let*" (= (let* ((a 1) (b (+ a 1)) (c (+ b 1))) (* a b c)) 6))
(check "letrec" (letrec ((f (lambda (n) (if (= n 0) #t (g (- n 1))))) (g (lambda (n) (f n)))) (f 10)))
(check "shadow" (let ((car cdr) (x '(1 2))) (null? (car (car x)))))
(define (apply-it f x) (f x))
(check "built in" (= (apply-it car '(7 8)) 7))
(check "cond" (equal? (cond ((= 1 2) 'no) ((null? '(1)) 'no) (else 'yes)) 'yes))

; Strings, and vectors that are written to while garbage is made.
(check "strings" (equal? (string-append "a" (number->string -12) (symbol->string 'b)) "a-12b"))
(define v (make-vector 100 '()))
(let loop ((i 0))
  (when (< i 20000)
    (let ((at (remainder i 100)))
      (vector-set! v at (cons (number->string i) '())))
    (loop (+ i 1))))
(check "vectors" (and (equal? (car (vector-ref v 0)) "19900") (equal? (car (vector-ref v 99)) "19999")))

; A list of a hundred thousand, compared to another.
(define (build n list) (if (= n 0) list (build (- n 1) (cons n list))))
(check "equal" (and (equal? (build 100000 '()) (build 100000 '())) (not (equal? (build 10 '()) (build 11 '())))))
(check "eq" (and (not (eq? (list 1) (list 1))) (let ((x (list 1))) (eq? x x))))

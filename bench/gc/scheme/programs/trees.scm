; A tree of 2^SIZE leaves that stays, and 64 of 2^(SIZE-4) that come and go.
(define (tree depth)
  (if (= depth 0)
      (cons '() '())
      (let ((left (tree (- depth 1))))
        (cons left (tree (- depth 1))))))

(define (count tree)
  (if (null? tree) 0 (+ 1 (count (car tree)) (count (cdr tree)))))

(define long (tree SIZE))

(let loop ((round 0) (sum 0))
  (if (= round 64)
      (begin (display sum) (display "\n"))
      (loop (+ round 1) (+ sum (count (tree (- SIZE 4)))))))

(display (count long))
(display "\n")

; Number of ways to put SIZE queens on a board, by lists.
(define (range from to)
  (if (> from to) '() (cons from (range (+ from 1) to))))

(define (safe? queen distance others)
  (or (null? others)
      (and (not (= (car others) queen))
           (not (= (car others) (+ queen distance)))
           (not (= (car others) (- queen distance)))
           (safe? queen (+ distance 1) (cdr others)))))

(define (fold f start list)
  (if (null? list) start (fold f (f start (car list)) (cdr list))))

(define columns (range 1 SIZE))

(define (ways left others)
  (if (= left 0)
      1
      (fold (lambda (sum queen)
              (if (safe? queen 1 others)
                  (+ sum (ways (- left 1) (cons queen others)))
                  sum))
            0
            columns)))

(display (ways SIZE '()))
(display "\n")

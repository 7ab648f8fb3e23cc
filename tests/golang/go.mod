module holders

go 1.19

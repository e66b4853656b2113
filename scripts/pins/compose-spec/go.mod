// The schema of the compose specification, as its reference implementation carries it.
module pins

go 1.23

require github.com/compose-spec/compose-go/v2 v2.4.9

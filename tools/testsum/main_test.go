package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		name   string
		events string
		want   string
		err    string
	}{
		{
			name: "what passes is one line for each package",
			events: `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}`,
			want: "ok  \tp\t0.1s\n?   \tq\t[no test files]\n2 passed, 0 failed, 0 skipped\n",
		},
		{
			name: "what fails is told in full, without what passes beside it",
			events: `
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: wrong\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}`,
			want: "    a_test.go:3: wrong\nFAIL\tp\t0.1s\n1 passed, 1 failed, 0 skipped\n",
			err:  "1 failed",
		},
		{
			name: "a package that does not build has failed",
			events: `
{"ImportPath":"p [p.test]","Action":"build-output","Output":"./a.go:1:1: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			want: "./a.go:1:1: undefined: x\nFAIL\tp [build failed]\n0 passed, 1 failed, 0 skipped\n",
			err:  "1 failed",
		},
		{
			name: "a package whose end is missing has failed",
			events: `
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}`,
			want: "FAIL\tp\tno end of it was reported\n=== RUN   TestB\n1 passed, 1 failed, 0 skipped\n",
			err:  "1 failed",
		},
		{
			name: "a skip that is not allowed",
			events: `
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: there is no gizmo here\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}`,
			want: "skipped: p TestB: there is no gizmo here\n1 passed, 0 failed, 1 skipped\n",
			err:  "1 skipped that must run here",
		},
		{
			name: "a skip is judged by its message, not by the test's name or file",
			events: `
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"Test_gizmo","Output":"    gizmo_test.go:9: only on Mondays\n"}
{"Action":"skip","Package":"p","Test":"Test_gizmo"}
{"Action":"pass","Package":"p"}`,
			want: "skipped: p Test_gizmo: only on Mondays\n1 passed, 0 failed, 1 skipped\n",
		},
		{
			name:   "nothing ran",
			events: `{"Action":"skip","Package":"q"}`,
			want:   "0 passed, 0 failed, 0 skipped\n",
			err:    "no test passed",
		},
		{
			name:   "what is no event is passed on",
			events: "warning: cannot do this\n" + `{"Action":"pass","Package":"p","Test":"TestA"}`,
			want:   "warning: cannot do this\n1 passed, 0 failed, 0 skipped\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := run(strings.NewReader(strings.TrimPrefix(tc.events, "\n")), &out, "gizmo")
			got := ""
			if err != nil {
				got = err.Error()
			}
			if out.String() != tc.want || got != tc.err {
				t.Errorf("printed:\n%s\nwant:\n%s\nerror %q, want %q", out.String(), tc.want, got, tc.err)
			}
		})
	}
}

#!/usr/bin/env bash
# Generates bankv1 from bank.proto. It needs buf, and the plugins of buf.gen.yaml, on the PATH.
#
# The generators add types that answer for methods that a server does not have. The bank has them
# all, so these types are taken out, with what they import.
set -euo pipefail
cd "$(dirname "$0")"

if [ "${1:-}" != --trim-only ]; then
	buf generate
fi
perl -0pi -e '
	s{^// UnimplementedBankServer must be.*?(?=^func RegisterBankServer)}{}ms;
	s{^// All implementations must embed.*?compatibility\.\n}{}ms;
	s{^\tmustEmbedUnimplementedBankServer\(\)\n}{}mg;
	s{^\t// If the following call panics.*?(?=^\ts\.RegisterService)}{}ms;
	s{^\t(?:codes|status) "[^"]*"\n}{}mg;
' bankv1/bank_grpc.pb.go
perl -0pi -e '
	s{\n// UnimplementedBankHandler returns.*}{}ms;
	s{^\terrors "errors"\n}{}m;
' bankv1/bankv1connect/bank.connect.go

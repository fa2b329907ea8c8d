#!/usr/bin/env bash
# Unpack Python and ONNX Runtime for 64-bit ARM into a folder, for an emulator to run:
#
#     apt-get install qemu-user-static
#     tests/portability/aarch64.sh && make portability
#
# Debian 12 has the packages of these names. Nothing is installed outside of .venv-aarch64.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
folder="$root/.venv-aarch64"
rm -rf "$folder"
mkdir -p "$folder"/{apt/lists/partial,apt/archives/partial,packages,wheels,system,site}
touch "$folder/apt/status"
cat > "$folder/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
END
export APT_CONFIG="$folder/apt.conf"
apt-get update -qq
(cd "$folder/packages" && apt-get download -qq python3.11-minimal libpython3.11-minimal \
	libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 libcrypt1 zlib1g libexpat1 libssl3 libffi8 \
	libbz2-1.0 liblzma5 libuuid1 libsqlite3-0)
for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/system"; done
# ONNX Runtime reads the processor's name, and fails to load with that of x86.
mkdir "$folder/system/proc"
for core in 0 1; do
	printf '%s\n' "processor	: $core" "Features	: fp asimd aes pmull sha1 sha2 crc32" \
		"CPU implementer	: 0x41" "CPU architecture: 8" "CPU variant	: 0x0" \
		"CPU part	: 0xd08" "CPU revision	: 3" ""
done > "$folder/system/proc/cpuinfo"
"$root/.venv/bin/python" -m pip download --quiet --only-binary :all: --python-version 3.11 \
	--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
	--platform manylinux2014_aarch64 --constraint "$root/constraints.txt" \
	--dest "$folder/wheels" onnxruntime numpy safetensors
for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/site"; done

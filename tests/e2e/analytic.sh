# Profiles of devices that are not at hand: estimated, planned with, and refused where options make
# no sense.
source "$(dirname "$0")/lib.sh"

run 0 profile --list-devices
grep -q '^v100 .*15700.0 GFLOP/s.*900 GB/s.*16.0 GB' out ||
  fail "v100 is not in the list of devices: $(cat out)"
run 0 profile --list-devices --json
json_keys devices flops_per_s
run 0 profile --help
grep -q -- '--list-devices' out || fail "--help does not say where the devices are listed"

for model in vgg16 resnet50 mlp; do
  run 0 profile --model $model --batch-size 128 --analytic --device v100 --json -o $model.json
  json_keys layers batch_size
  grep -q '"source":"analytic"' out ||
    fail "$model: the profile does not say that it is an estimate"
  grep -q '"device":"v100"' out || fail "$model: the device is not named"
done
run 0 profile --model lenet5 --analytic --device cpu-core --optimizer adam
grep -q 'analytic, cpu-core' out || fail "the table does not say what it shows: $(head -n 2 out)"
run 0 plan --profile vgg16.json --workers 4 --bandwidth 10Gbps --json
json_keys config throughput_samples_per_s
# Nobody knows how sure an estimate is.
grep -q throughput_low out && fail "an interval of an estimate: $(head -c 300 out)"
run 0 plan --profile vgg16.json --workers 4 --bandwidth 10Gbps -o vgg16.plan.json
run 0 simulate --plan vgg16.plan.json --mini-batches 20 --json
grep -q '"throughput_low_samples_per_s":null' out || fail "an interval of an estimate: $(cat out)"

printf 'name = "mine"\nflops = "2TFLOP/s"\nbandwidth = "100GB/s"\n' >mine.toml
run 0 profile --model alexnet --analytic --device mine.toml --json
grep -q '"device":"mine"' out || fail "a device file is not used"

# A model on the machines that somebody has: nothing is loaded, nothing measured.
cat >hosts.toml <<'END'
[network]
bandwidth = "1Gbps"
[[machine]]
device = "mine.toml"
count = 2
[[machine]]
device = "t4"
END
run 0 plan --model gpt --depth 2 --width 64 --heads 2 --input 32 --batch-size 4 \
  --machines hosts.toml --time-limit 1s
grep -Eq '^[0-9,.]+ tokens/s, [0-9,.]+ to [0-9,.]+: an estimate from data sheets' out ||
  fail "no tokens per second: $(cat out)"
grep -q '^gpt: ' out || fail "no plan of the model: $(head -n 3 out)"
run 0 plan --model mlp --machines hosts.toml --time-limit 1s --json
grep -q tokens_per_sample out && fail "an mlp has tokens: $(cat out)"
# A change that cannot be planned for is an answer, not the end.
printf '[network]\nbandwidth = "1Gbps"\n[[machine]]\ndevice = "v100"\ncount = 4\n' >even.toml
run 0 plan --model gpt --depth 2 --width 64 --heads 2 --input 32 --machines even.toml --tensor 2 \
  --time-limit 1s
grep -Eq '^  one more v100 +does not fit' out || fail "teams of two on five: $(cat out)"
run 2 plan --model no-such.pt2 --machines hosts.toml
grep -q "no-such.pt2" err || fail "the missing model is not named: $(cat err)"

refused 'needs --device' profile --model lenet5 --analytic
refused '--analytic' profile --model lenet5 --device v100
refused '--samples' profile --model lenet5 --analytic --device v100 --samples 3
refused '--concurrency' profile --model lenet5 --analytic --device v100 --concurrency 2
refused "penstock: --device: unknown device 'v1000', expected one of v100" profile --model lenet5 \
  --analytic --device v1000
refused 'no-such.toml' profile --model lenet5 --analytic --device no-such.toml
refused '--batch-size' profile --model lenet5 --analytic --device v100 --batch-size 0
refused '2^60' profile --model vgg16 --analytic --device v100 --batch-size 1000000000000
printf 'name = "mine"\nflops = "2TB/s"\nbandwidth = "100GB/s"\n' >bad.toml
refused 'bad.toml:2:' profile --model lenet5 --analytic --device bad.toml
finish

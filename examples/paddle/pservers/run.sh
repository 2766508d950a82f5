#!/bin/sh
# Two servers and two trainers on this host: MODE=async sh run.sh
# Without RAY_ADDRESS the first of them starts a Ray that ends with the last.
cd "$(dirname "$0")" || exit 1
export PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:6174,127.0.0.1:6175 PADDLE_TRAINERS_NUM=2
for port in 6174 6175; do
    PADDLE_TRAINING_ROLE=PSERVER POD_IP=127.0.0.1 PADDLE_PORT=$port python train.py &
done
for id in 0 1; do
    PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=$id python train.py &
done
wait

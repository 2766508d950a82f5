#!/bin/sh
# Two servers and two trainers on this host, without a launcher: MODE=async sh by_hand.sh
# Without RAY_ADDRESS the first of them starts a Ray that ends with the last.
cd "$(dirname "$0")" || exit 1
export PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:6174,127.0.0.1:6175 PADDLE_TRAINERS_NUM=2
for port in 6174 6175; do
    TRAINING_ROLE=PSERVER POD_IP=127.0.0.1 PADDLE_PORT=$port python distributed.py "${MODE:-sync}" &
done
for id in 0 1; do
    TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=$id python distributed.py "${MODE:-sync}" &
done
wait

# A job of the chaos run: it says when it starts, lives and ends, in a file that nothing removes.
#
#   sh work.sh TRACES KIND SECONDS EXIT_CODE NOISE_BYTES
#
# A line: what, epoch, pid, seconds since boot, and for some the time of day and an exit code.

traces=$1 kind=$2 seconds=$3 code=$4 noise=$5
trace=$traces/$STADO_JOB_ID

say() {
    read -r up _ < /proc/uptime
    echo "$1 $STADO_EPOCH $$ $up" >> "$trace"
}

stamp() {
    read -r up _ < /proc/uptime
    echo "$1 $STADO_EPOCH $$ $up $(date +%s.%N) $2" >> "$trace"
}

if [ "$kind" = child ]; then
    while :; do say child; sleep 0.5; done
fi

if [ "$kind" = verify ]; then
    [ -s "$STADO_OUTPUT_DIR/result" ] || code=8
    stamp verified "$code"
    exit "$code"
fi

stamp started -
case $kind in
    deaf) trap '' TERM ;;
    forking)
        setsid sh "$0" "$traces" child 0 0 0 > /dev/null 2>&1 &
        (trap '' TERM; exec setsid sh "$0" "$traces" child 0 0 0) > /dev/null 2>&1 &
        ;;
    noisy) yes 'a line of noise, of which there is more than anybody reads' | head -c "$noise" ;;
esac

step=1
saved=$STADO_CHECKPOINT_DIR/step
[ "$kind" = checkpoints ] && [ -s "$saved" ] && read -r step < "$saved"

# Steps of half a second; a shorter job has one.
case $seconds in
    *.*) steps=1 pause=$seconds ;;
    *) steps=$((seconds * 2)) pause=0.5 ;;
esac
while [ "$step" -le "$steps" ]; do
    echo "line $step"
    say lives
    sleep "$pause"
    step=$((step + 1))
    # A disk that is full costs a checkpoint, and prints nothing.
    [ "$kind" = checkpoints ] && { echo "$step" > "$saved.new" && mv "$saved.new" "$saved"; } 2> /dev/null
done

exec 2> /dev/null
echo "$STADO_JOB_ID $kind" > "$STADO_OUTPUT_DIR/result" || code=9
if [ "$kind" = files ]; then
    mkdir -p "$STADO_OUTPUT_DIR/deep/er" || code=9
    head -c 150000 /dev/urandom > "$STADO_OUTPUT_DIR/deep/er/blob" || code=9
fi
stamp ended "$code"
exit "$code"

# Asks the Python programs of this container where they hang. Only those that are this pod's: on one machine, /proc has others, too.
for dir in /proc/[0-9]*; do
  pid=${dir#/proc/}
  [ "$pid" != "$$" ] || continue
  grep -qa "POD_UID=$POD_UID" "$dir/environ" 2>/dev/null || continue
  case "$(readlink "$dir/exe" 2>/dev/null)" in *python*) ;; *) continue ;; esac
  # A debugger tells without a trace, where it may.
  if command -v py-spy >/dev/null 2>&1 && py-spy dump --pid "$pid" 2>/dev/null; then continue; fi
  # Otherwise a signal that the program is known to catch: faulthandler.register(SIGUSR1), or PYTHONFAULTHANDLER's SIGABRT.
  caught=0
  while read -r key mask; do
    if [ "$key" = SigCgt: ]; then caught=$((0x${mask#????????????})); fi
  done <"$dir/status"
  if [ $((caught & 0x200)) -ne 0 ]; then
    kill -USR1 "$pid" && echo "asked $pid"
  elif [ $((caught & 0x20)) -ne 0 ]; then
    kill -ABRT "$pid" && echo "asked $pid"
  fi
done
# What they say goes through their logs.
sleep 0.5

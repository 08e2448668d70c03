# Answers git's question for a login out of a private file ($1), and only for the place that the file names.
# git asks on stdin (protocol=, host=, path=) and adds the action as the last argument.
[ "$2" = get ] || exit 0

asked_protocol='' asked_host='' asked_path=''
while IFS= read -r line && [ -n "$line" ]; do
  case $line in
    protocol=*) asked_protocol=${line#protocol=} ;;
    host=*) asked_host=${line#host=} ;;
    path=*) asked_path=${line#path=} ;;
  esac
done

{
  IFS= read -r protocol && IFS= read -r host && IFS= read -r path && IFS= read -r username && IFS= read -r password
} <"$1" || exit 0

[ "$asked_protocol" = "$protocol" ] && [ "$asked_host" = "$host" ] || exit 0
case $asked_path in
  "$path" | "$path"/*) ;;
  *) [ -z "$path" ] || exit 0 ;;
esac
printf 'username=%s\npassword=%s\n' "$username" "$password"

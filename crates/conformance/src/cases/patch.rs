use super::cases;
cases! { "patch": }
